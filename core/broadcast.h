#pragma once

#include <cstdint>

#include "core/portable.h"
#include "core/tensor.h"

namespace minim {

// The shape of an element-wise loop over N operands, each with its own strides (0 where it is
// broadcast). Dimensions that all operands step through alike are merged.
template <int N>
struct BroadcastPlan {
  Shape shape;
  Shape strides[N];

  // Operands' shapes must broadcast to `shape`.
  BroadcastPlan(const Shape& shape, const Tensor* const (&operands)[N]);

  // No operand needs index arithmetic: all are walked from first to last element.
  bool contiguous() const {
    if (shape.rank() > 1) return false;
    for (const Shape& s : strides)
      if (shape.rank() == 1 && s[0] != 1) return false;
    return true;
  }
};

// Element offsets of one element in each of the N operands.
template <int N>
struct Offsets {
  int64_t at[N];
  HD int64_t operator[](int k) const { return at[k]; }
};

// --- implementation ---

template <int N>
BroadcastPlan<N>::BroadcastPlan(const Shape& full, const Tensor* const (&operands)[N]) {
  Shape all[N];
  for (int k = 0; k < N; ++k) {
    const Tensor& t = *operands[k];
    const int lead = full.rank() - t.rank();
    for (int i = 0; i < full.rank(); ++i)
      all[k].push_back(i < lead || t.shape()[i - lead] == 1 ? 0 : t.strides()[i - lead]);
  }
  for (int i = 0; i < full.rank(); ++i) {
    if (full[i] == 1) continue;
    bool merge = shape.rank() > 0;
    for (int k = 0; merge && k < N; ++k)
      merge = strides[k].back() == all[k][i] * full[i];
    if (merge) {
      shape.back() *= full[i];
      for (int k = 0; k < N; ++k)
        strides[k].back() = all[k][i];
    } else {
      shape.push_back(full[i]);
      for (int k = 0; k < N; ++k)
        strides[k].push_back(all[k][i]);
    }
  }
}

}  // namespace minim
