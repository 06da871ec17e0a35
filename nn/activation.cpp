#include "nn/activation.h"

#include <utility>

#include "autograd/ops.h"

namespace minim::nn {

namespace {

// gelu_new, gelu_pytorch_tanh and gelu_fast are one formula in three spellings.
constexpr std::pair<std::string_view, Tensor (*)(const Tensor&)> activations[] = {
    {"gelu", gelu},
    {"gelu_new", gelu_tanh},
    {"gelu_pytorch_tanh", gelu_tanh},
    {"gelu_fast", gelu_tanh},
    {"quick_gelu", quick_gelu},
    {"relu", relu},
    {"silu", silu},
    {"swish", silu},
    {"tanh", tanh},
    {"sigmoid", sigmoid},
    {"mish", mish},
};

}  // namespace

Activation::Activation(std::string_view name) : name_(name), function_(nullptr) {
  std::string known;
  for (const auto& [candidate, function] : activations) {
    if (candidate == name) function_ = function;
    known += (known.empty() ? "" : ", ") + std::string(candidate);
  }
  check(function_ != nullptr, "activation: \"{}\" is unknown; known are {}", name, known);
}

}  // namespace minim::nn
