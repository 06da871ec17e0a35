#pragma once

#include <doctest/doctest.h>

#include "core/device.h"

namespace minim {

// Decorates tests that are left out where there is no CUDA device.
inline const doctest::skip needs_device(cuda::device_count() == 0);

}  // namespace minim
