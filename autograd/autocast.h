#pragma once

#include <optional>

#include "core/tensor.h"

// Mixed precision, with the rules of PyTorch's autocast.
namespace minim {

// While it lives, this thread's linear, matmul, attention and scaled_dot_product_attention take
// their f32 inputs in f16 or bf16 and return that, with sums in f32; layer_norm, softmax,
// log_softmax, logsumexp, exp, log, pow, rsqrt, sum, norm and the losses compute and return f32;
// others work in the dtype they are given, where two differ in f32. f64 is left alone.
//
// Parameters and their gradients stay f32. A parameter is cast once for each of its versions, so
// whoever writes it through data() has to say so with bump_version(). backward() belongs outside,
// but runs as if it were. With no dtype, autocast is off as long as it lives.
class Autocast {
 public:
  // Throws unless the dtype is f16 or bf16.
  explicit Autocast(std::optional<DType> dtype);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  std::optional<DType> before_;
};

// The dtype of the innermost Autocast on this thread; none where there is none.
std::optional<DType> autocast_dtype();

// For operations, all differentiable; without Autocast they return what they are given.
// In autocast's dtype.
Tensor to_autocast(const Tensor& x);
// In f32.
Tensor to_full_precision(const Tensor& x);
// In f32 where another operand has another dtype.
Tensor to_common_dtype(const Tensor& x, const Tensor& other);

}  // namespace minim
