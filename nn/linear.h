#pragma once

#include "autograd/ops.h"
#include "nn/module.h"

namespace minim::nn {

// y = x weightᵀ + bias.   x: [.., in], y: [.., out]
class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, Scope at = Scope(), bool with_bias = true)
      : Module(at),
        weight(at.parameter("weight", {out, in}, Init::normal(at.options().initializer_range))),
        bias(with_bias ? at.parameter("bias", {out}, Init::zeros()) : Tensor()) {}

  Tensor forward(const Tensor& x) const { return linear(x, weight, bias); }

  Tensor weight, bias;
};

}  // namespace minim::nn
