#include "optim/state_size.h"

namespace minim::optim {

void StateSize::add(const std::string& parameter, const StateFields& fields) {
  for (const StateField& field : fields) {
    if (!std::holds_alternative<Tensor*>(field.value)) {
      ++numbers;
      continue;
    }
    const int64_t n = field.shape.numel(), size = n * size_of(field.dtype);
    entries.push_back({parameter, std::string(field.key), field.shape, field.dtype, n, size});
    elements += n;
    bytes += size;
  }
}

}  // namespace minim::optim
