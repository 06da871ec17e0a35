#pragma once

#include <tuple>
#include <utility>

#include "core/tensor.h"

namespace minim::nn {

// Layers applied one after the other; anything with a forward(Tensor) is a layer:
//   Sequential mlp{Linear(4, 8, at / 0), Activation("gelu"), Linear(8, 2, at / 2)};
// Braces, as C++ makes the arguments of parentheses, and with them the parameters, in any order.
template <class... Layers>
class Sequential {
 public:
  explicit Sequential(Layers... all) : layers(std::move(all)...) {}

  Tensor forward(const Tensor& x) const {
    return std::apply(
        [&x](const Layers&... all) {
          Tensor y = x;
          ((y = all.forward(y)), ...);
          return y;
        },
        layers);
  }

  std::tuple<Layers...> layers;
};

}  // namespace minim::nn
