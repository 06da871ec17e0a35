#include "core/shape.h"

namespace minim {

Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view op) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  const int lead = longer.rank() - shorter.rank();
  Shape result = longer;
  for (int i = 0; i < shorter.rank(); ++i) {
    int64_t& extent = result[lead + i];
    check(extent == shorter[i] || extent == 1 || shorter[i] == 1,
          "{}: shapes {} and {} do not broadcast", op, a, b);
    if (extent == 1) extent = shorter[i];
  }
  return result;
}

}  // namespace minim
