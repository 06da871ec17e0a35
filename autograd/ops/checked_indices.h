#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/tensor.h"

// Private to autograd/ops/.
namespace minim {

// The indices, contiguous, of which each is in [0, extent) or `ignored`. Throws Error for other
// dtypes than i32 and i64; and with what `describe` says of the first that is not, given its value
// and its place: now, where the host knows the values, which it does if they came from there. Those
// that a device has computed it checks itself; the host throws when it next waits for the device,
// and until then the index is 0.
Tensor checked_indices(std::string_view op, const Tensor& indices, int64_t extent,
                       std::optional<int64_t> ignored,
                       std::function<std::string(int64_t value, int64_t place)> describe);

}  // namespace minim
