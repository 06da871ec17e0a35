#include "nn/recompute.h"

#include "autograd/autocast.h"
#include "autograd/enable_grad.h"
#include "autograd/node.h"

namespace minim::nn {

namespace {

// Puts a model's dropout and mode where they were at some time, and back.
class Replay {
 public:
  Replay(const Module& module, const Generator& generator, bool training)
      : module_(module), generator_(module.generator()), training_(module.training()) {
    module_.generator() = generator;
    module_.train(training);
  }
  ~Replay() {
    module_.generator() = generator_;
    module_.train(training_);
  }
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

 private:
  const Module& module_;
  Generator generator_;
  bool training_;
};

// The input again, as the result of an operation whose backward puts the gradient into `gradient`.
// A leaf would count it as a gradient that is kept, and in mixed precision as a parameter.
Tensor passes_gradient_to(Tensor& gradient, const Tensor& input) {
  Tensor leaf = input.detach();
  leaf.set_requires_grad(true);
  return record("recompute", leaf.detach(), {leaf}, [&gradient](const Tensor& dy) -> Tensors {
    gradient = dy;
    return {Tensor()};
  });
}

}  // namespace

Tensor recompute(const Module& module, std::function<Tensor(const Tensors&)> forward,
                 const Tensors& inputs) {
  const Generator generator = module.generator();
  const bool training = module.training();
  const std::optional<DType> precision = autocast_dtype();
  Tensor value;
  {
    const NoGrad no_grad;
    value = forward(inputs);
  }
  // The parameters are inputs so that there is a backward where no other input wants one; it adds
  // to their gradients itself.
  Tensors all = inputs;
  for (const NamedTensor& parameter : module.parameters())
    all.push_back(parameter.tensor);
  std::vector<Saved> saved(inputs.begin(), inputs.end());
  std::vector<bool> wanted;
  for (const Tensor& input : inputs)
    wanted.push_back(input.defined() && input.requires_grad());
  return record(
      "recompute", value, all,
      [module, forward = std::move(forward), saved = std::move(saved), wanted = std::move(wanted),
       count = all.size(), generator, training, precision](const Tensor& dy) {
        const Replay replay(module, generator, training);
        const EnableGrad enable_grad;
        const Autocast as_before(precision);
        Tensors gradients(count), again;
        for (size_t i = 0; i < saved.size(); ++i) {
          const Tensor& input = saved[i].get();
          again.push_back(wanted[i] ? passes_gradient_to(gradients[i], input) : input);
        }
        forward(again).backward(dy);
        return gradients;
      });
}

}  // namespace minim::nn
