#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include <fmt/core.h>

#include "core/error.h"

namespace minim {

// Extents of a tensor, outermost first; at most 8, held inline. [] is the shape of a scalar.
class Shape {
 public:
  static constexpr int max_rank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims)
      : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims) {
    for (int64_t d : dims)
      push_back(d);
  }

  int rank() const { return rank_; }
  int64_t operator[](int64_t i) const { return dims_[size_t(i)]; }
  int64_t& operator[](int64_t i) { return dims_[size_t(i)]; }
  int64_t back() const { return dims_[size_t(rank_ - 1)]; }
  int64_t& back() { return dims_[size_t(rank_ - 1)]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }

  // Product of the extents; 1 for a scalar.
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t d : *this)
      n *= d;
    return n;
  }

  void push_back(int64_t d) {
    check(rank_ < max_rank, "shape: more than {} dimensions", max_rank);
    dims_[size_t(rank_++)] = d;
  }
  void insert(int at, int64_t d) {
    push_back(d);
    std::rotate(dims_.begin() + at, dims_.begin() + rank_ - 1, dims_.begin() + rank_);
  }
  void erase(int at) {
    std::copy(dims_.begin() + at + 1, dims_.begin() + rank_, dims_.begin() + at);
    --rank_;
  }

  bool operator==(const Shape& other) const { return std::ranges::equal(*this, other); }

  // "[2, 3]"
  std::string to_string() const {
    std::string text = "[";
    for (int i = 0; i < rank_; ++i)
      text += (i ? ", " : "") + std::to_string(dims_[size_t(i)]);
    return text + "]";
  }

 private:
  std::array<int64_t, max_rank> dims_{};
  int rank_ = 0;
};

// Strides of contiguous memory of that shape, in elements.
inline Shape contiguous_strides(const Shape& shape) {
  Shape strides = shape;
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

// Turns a dimension counted from either end into 0..rank-1, or throws naming `op` and the shape.
inline int normalize_dim(int64_t dim, const Shape& shape, std::string_view op) {
  const int64_t rank = shape.rank();
  check(dim >= -rank && dim < rank, "{}: dim {} is out of range for shape {}", op, dim,
        shape.to_string());
  return int(dim < 0 ? dim + rank : dim);
}

// The shape two operands broadcast to (NumPy's rule), or throws naming `op` and both shapes.
Shape broadcast_shapes(const Shape& a, const Shape& b, std::string_view op);

}  // namespace minim

template <>
struct fmt::formatter<minim::Shape> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(const minim::Shape& shape, Context& context) const {
    const std::string text = shape.to_string();
    return std::copy(text.begin(), text.end(), context.out());
  }
};
