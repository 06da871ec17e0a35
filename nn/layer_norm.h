#pragma once

#include "autograd/ops.h"
#include "nn/module.h"

namespace minim::nn {

// Normalises over the last dim, then scales and shifts.   x, y: [.., dim]
class LayerNorm : public Module {
 public:
  explicit LayerNorm(int64_t dim, Scope at = Scope(), double eps = 1e-12)
      : Module(at),
        weight(at.parameter("weight", {dim}, Init::ones())),
        bias(at.parameter("bias", {dim}, Init::zeros())),
        eps(eps) {}

  Tensor forward(const Tensor& x) const { return layer_norm(x, weight, bias, eps); }

  Tensor weight, bias;
  double eps;
};

}  // namespace minim::nn
