#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/dtype.h"

namespace minim {

// Element types that a weight file may hold, under the names of safetensors and in its order of
// ascending alignment, which is also the order files are written in (last first).
enum class StoredDType : uint8_t {
  BOOL,
  F4,
  F6_E2M3,
  F6_E3M2,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  F8_E8M0,
  F8_E4M3FNUZ,
  F8_E5M2FNUZ,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64
};

inline constexpr std::array<std::string_view, 22> stored_dtype_names = {
    "BOOL",    "F4",          "F6_E2M3",     "F6_E3M2", "U8",  "I8",  "F8_E5M2", "F8_E4M3",
    "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "I16",     "U16", "F16", "BF16",    "I32",
    "U32",     "F32",         "C64",         "F64",     "I64", "U64"};

// "F32", "F8_E4M3", ...
constexpr std::string_view name_of(StoredDType dtype) {
  return stored_dtype_names[size_t(dtype)];
}

// Bits of one element.
constexpr uint64_t bits_of(StoredDType dtype) {
  constexpr std::array<uint8_t, 22> bits = {8,  4,  6,  6,  8,  8,  8,  8,  8,  8,  8,
                                            16, 16, 16, 16, 32, 32, 32, 64, 64, 64, 64};
  return bits[size_t(dtype)];
}

// The stored type of that name, spelled exactly; nothing if there is none.
constexpr std::optional<StoredDType> stored_dtype_named(std::string_view name) {
  for (size_t i = 0; i < stored_dtype_names.size(); ++i) {
    if (stored_dtype_names[i] == name) return StoredDType(i);
  }
  return std::nullopt;
}

// The type a tensor of it has in memory; nothing for types that can be listed but not loaded.
constexpr std::optional<DType> loaded_dtype(StoredDType dtype) {
  switch (dtype) {
    case StoredDType::F32:
      return DType::f32;
    case StoredDType::F64:
      return DType::f64;
    case StoredDType::F16:
      return DType::f16;
    case StoredDType::BF16:
      return DType::bf16;
    case StoredDType::I32:
      return DType::i32;
    case StoredDType::I64:
      return DType::i64;
    case StoredDType::U8:
      return DType::u8;
    case StoredDType::BOOL:
      return DType::boolean;
    default:
      return std::nullopt;
  }
}

// The type a tensor is stored as.
constexpr StoredDType stored_dtype(DType dtype) {
  constexpr std::array<StoredDType, 8> stored = {
      StoredDType::F32, StoredDType::F64, StoredDType::F16, StoredDType::BF16,
      StoredDType::I32, StoredDType::I64, StoredDType::U8,  StoredDType::BOOL};
  return stored[size_t(dtype)];
}

}  // namespace minim
