#pragma once

#include <string_view>

#include "nn/activation.h"
#include "nn/dropout.h"
#include "nn/linear.h"

namespace minim::nn {

// y = dropout(lin2(activation(lin1(x)))).   x, y: [.., dim]
class FeedForward : public Module {
 public:
  FeedForward(int64_t dim, int64_t hidden_dim, std::string_view activation, float dropout_p,
              Scope at = Scope())
      : Module(at),
        lin1(dim, hidden_dim, at / "lin1"),
        lin2(hidden_dim, dim, at / "lin2"),
        activation(activation),
        dropout(dropout_p, at) {}

  Tensor forward(const Tensor& x) const {
    return dropout.forward(lin2.forward(activation.forward(lin1.forward(x))));
  }

  Linear lin1, lin2;
  Activation activation;
  Dropout dropout;
};

}  // namespace minim::nn
