#pragma once

#include "autograd/ops.h"
#include "nn/module.h"

namespace minim::nn {

// In training, zeroes elements with probability p and scales the others; the identity in
// evaluation.
class Dropout : public Module {
 public:
  explicit Dropout(float p, Scope at = Scope()) : Module(at), p(p) {}

  Tensor forward(const Tensor& x) const { return training() ? dropout(x, p, generator()) : x; }

  float p;
};

}  // namespace minim::nn
