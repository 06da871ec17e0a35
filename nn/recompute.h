#pragma once

#include <functional>

#include "nn/module.h"

namespace minim::nn {

// forward(inputs) without keeping what its operations need for their backward: the backward runs it
// again and gives the same gradients to the last bit, with the same dropout and under the same
// Autocast (PyTorch's torch.utils.checkpoint; Chen et al., 2016). Takes one more forward, and keeps
// the inputs alone.
// (An input that is a leaf and has a gradient already gets this one as one sum, so rounding may
// differ.)
//
// `module` is the layer whose forward it is: its parameters get their gradients, and its dropout
// masks and mode are those of the first time. `forward` is kept until the backward; what it
// captures must live and stay the same until then. Other tensors than `inputs` and the module's
// parameters get no gradient through it where neither of those wants one.
//
//   const auto run = [&](const Tensors& t) { return block.forward(t[0], t[0], rows); };
//   x = nn::recompute(block, run, {x});
Tensor recompute(const Module& module, std::function<Tensor(const Tensors&)> forward,
                 const Tensors& inputs);

}  // namespace minim::nn
