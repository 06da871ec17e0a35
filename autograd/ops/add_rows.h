#pragma once

#include "core/tensor.h"

// Private to autograd/ops/.
namespace minim {

// to[index[i]] += from[i] for each i whose index is not `skip`.
//   to: [rows, dim] in the dtype that `from` is computed in; from: [n, dim]; index: [n], each in
//   [0, rows); all contiguous and on one device
// The CPU adds in the order of i. A device adds 32 rows of one index in that order, then such sums
// where there are more: the bits are the same from run to run, those of the CPU where no index
// occurs more often, and rows of zeros at the end change none.
void add_rows(const Tensor& to, const Tensor& from, const Tensor& index, int64_t skip = -1);

}  // namespace minim
