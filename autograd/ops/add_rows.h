#pragma once

#include "core/tensor.h"

// Private to autograd/ops/.
namespace minim {

// to[index[i]] += from[i] for each i whose index is not `skip`.
//   to: [rows, dim] in the dtype that `from` is computed in; from: [n, dim]; index: [n], each in
//   [0, rows); all contiguous and on one device
// The CPU adds in the order of i. A device adds up to 256 of `from` in that order, then such sums
// where more have the same index: its bits are the same from run to run, and those of the CPU where
// an index occurs a few times.
void add_rows(const Tensor& to, const Tensor& from, const Tensor& index, int64_t skip = -1);

}  // namespace minim
