#pragma once

#include <optional>
#include <string_view>

#include "core/device.h"
#include "core/dtype.h"

namespace minim::train {

// In what a run computes. Weights, their gradients and the optimizer's state are f32 in each.
enum class Precision : uint8_t {
  automatic,  // bf16 where that is faster, on CUDA devices; else f32
  fp32,
  bf16,  // autograd/autocast.h
  fp16   // the same with a scaled loss, optim/grad_scaler.h
};

// "auto", "fp32", "bf16" or "fp16".
std::string_view name_of(Precision precision);
// Throws for a name that is none.
Precision parse_precision(std::string_view name);
// What autocast takes on a device; none for f32.
std::optional<DType> autocast_dtype_of(Precision precision, Device device);

}  // namespace minim::train
