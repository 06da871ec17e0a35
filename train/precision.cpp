#include "train/precision.h"

#include "core/error.h"
#include "core/printable.h"

namespace minim::train {

std::string_view name_of(Precision precision) {
  return precision == Precision::automatic ? "auto"
         : precision == Precision::fp32    ? "fp32"
         : precision == Precision::bf16    ? "bf16"
                                           : "fp16";
}

Precision parse_precision(std::string_view name) {
  for (const Precision precision :
       {Precision::automatic, Precision::fp32, Precision::bf16, Precision::fp16})
    if (name_of(precision) == name) return precision;
  fail("precision: there is no {}; there are auto, fp32, bf16 and fp16", printable(name));
}

std::optional<DType> autocast_dtype_of(Precision precision, Device device) {
  if (precision == Precision::automatic)
    precision = device.is_cuda() ? Precision::bf16 : Precision::fp32;
  if (precision == Precision::fp32) return std::nullopt;
  return precision == Precision::bf16 ? DType::bf16 : DType::f16;
}

}  // namespace minim::train
