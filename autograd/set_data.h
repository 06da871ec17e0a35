#pragma once

#include "core/tensor.h"

namespace minim {

// From now on x, by whatever handle, is a view of another tensor's memory, of its shape and dtype.
// Its gradient is dropped, and the backward of what was computed before does not reach it. Leaves
// only. That is how parameters change devices.
void set_data(const Tensor& x, const Tensor& other);

}  // namespace minim
