#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/half.h"

namespace minim {

// Element types. f16 and bf16 are for storage; f64 is for checks; integers and bool never carry
// gradients.
enum class DType : uint8_t { f32, f64, f16, bf16, i32, i64, u8, boolean };

// Bytes of one element.
constexpr int64_t size_of(DType dtype) {
  constexpr int64_t bytes[] = {4, 8, 2, 2, 4, 8, 1, 1};
  return bytes[size_t(dtype)];
}

// "f32", "f64", "f16", "bf16", "i32", "i64", "u8" or "bool".
constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view names[] = {"f32", "f64", "f16", "bf16", "i32", "i64", "u8", "bool"};
  return names[size_t(dtype)];
}

constexpr bool is_floating(DType dtype) {
  return dtype <= DType::bf16;
}

// The DType of a C++ element type: dtype_of<float> is DType::f32.
template <class T>
inline constexpr DType dtype_of = T::no_such_element_type;
template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<f16> = DType::f16;
template <>
inline constexpr DType dtype_of<bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<int32_t> = DType::i32;
template <>
inline constexpr DType dtype_of<int64_t> = DType::i64;
template <>
inline constexpr DType dtype_of<uint8_t> = DType::u8;
template <>
inline constexpr DType dtype_of<bool> = DType::boolean;

// The type that kernels compute in: double for f64, float for every other floating type.
template <class T>
struct ComputeType {
  using type = float;
};
template <>
struct ComputeType<double> {
  using type = double;
};
template <class T>
using Compute = typename ComputeType<T>::type;

// Calls body.operator()<T>() with the C++ type of a floating dtype, or throws naming `op`.
template <class Body>
decltype(auto) dispatch_float(DType dtype, std::string_view op, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body.template operator()<float>();
    case DType::f64:
      return body.template operator()<double>();
    case DType::f16:
      return body.template operator()<f16>();
    case DType::bf16:
      return body.template operator()<bf16>();
    default:
      fail("{}: needs f32, f64, f16 or bf16, got {}", op, name_of(dtype));
  }
}

// Calls body.operator()<T>() with the C++ type of i32 or i64, or throws naming `op`.
template <class Body>
decltype(auto) dispatch_index(DType dtype, std::string_view op, Body&& body) {
  switch (dtype) {
    case DType::i32:
      return body.template operator()<int32_t>();
    case DType::i64:
      return body.template operator()<int64_t>();
    default:
      fail("{}: needs i32 or i64, got {}", op, name_of(dtype));
  }
}

// Calls body.operator()<T>() with the C++ type of any dtype.
template <class Body>
decltype(auto) dispatch_any(DType dtype, Body&& body) {
  switch (dtype) {
    case DType::f32:
      return body.template operator()<float>();
    case DType::f64:
      return body.template operator()<double>();
    case DType::f16:
      return body.template operator()<f16>();
    case DType::bf16:
      return body.template operator()<bf16>();
    case DType::i32:
      return body.template operator()<int32_t>();
    case DType::i64:
      return body.template operator()<int64_t>();
    case DType::u8:
      return body.template operator()<uint8_t>();
    case DType::boolean:
      return body.template operator()<bool>();
  }
  fail("dispatch: {} is no element type", int(dtype));
}

}  // namespace minim
