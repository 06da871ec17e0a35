#pragma once

#include <functional>
#include <string_view>

#include "core/tensor.h"

// The graph. An operation computes its value with kernels, then calls record(); that is all there
// is to making it differentiable. First-order gradients only: a backward runs without recording.
namespace minim {

// From the gradient of an operation's output to one gradient per input, in order. An undefined
// Tensor means "no gradient". Gradients are returned, never stored, so the engine can check them.
using Backward = std::function<Tensors(const Tensor& dy)>;

// Returns `value` as the output of an operation on `inputs` (an undefined Tensor is an input that
// was left out). Drops the closure where no input requires a gradient or under NoGrad.
Tensor record(std::string_view op, Tensor value, const Tensors& inputs, Backward backward);

// For operations that have no derivative: throws if a gradient could be asked of the result.
Tensor record_without_backward(std::string_view op, Tensor value, const Tensors& inputs);

// A tensor kept for the backward. get() refuses if the memory was written in the meantime.
class Saved {
 public:
  Saved(const Tensor& tensor);  // NOLINT(google-explicit-constructor): `[x = Saved(x)]` reads well
  const Tensor& get() const;

 private:
  Tensor tensor_;
  int64_t version_;
};

// While it lives, this thread records nothing.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

// Whether this thread records.
bool grad_enabled();

// While it lives, this thread's forward and backward stop at the first operation that makes a NaN
// or an infinity out of finite inputs, and name it. Slow; for finding where a loss went wrong.
class DetectAnomaly {
 public:
  DetectAnomaly();
  ~DetectAnomaly();
  DetectAnomaly(const DetectAnomaly&) = delete;
  DetectAnomaly& operator=(const DetectAnomaly&) = delete;

 private:
  bool before_;
};

// Whether all elements are finite; integers are.
bool all_finite(const Tensor& x);

}  // namespace minim
