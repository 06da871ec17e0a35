#pragma once

#include <string>
#include <string_view>

#include "core/tensor.h"

namespace minim::nn {

// An activation by Hugging Face's name: gelu (erf), gelu_new, gelu_pytorch_tanh, gelu_fast,
// quick_gelu, relu, silu, swish, tanh, sigmoid or mish. Any other name is an error that lists
// these.
class Activation {
 public:
  explicit Activation(std::string_view name);

  Tensor forward(const Tensor& x) const { return function_(x); }
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  Tensor (*function_)(const Tensor&);
};

}  // namespace minim::nn
