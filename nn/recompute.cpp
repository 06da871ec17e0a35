#include "nn/recompute.h"

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

}  // namespace

Tensor recompute(const Module& module, std::function<Tensor(const Tensors&)> forward,
                 const Tensors& inputs) {
  const Generator generator = module.generator();
  const bool training = module.training();
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
       count = all.size(), generator, training](const Tensor& dy) {
        Tensors leaves;
        for (size_t i = 0; i < saved.size(); ++i) {
          const Tensor& input = saved[i].get();
          leaves.push_back(input.defined() ? input.detach() : input);
          if (wanted[i]) leaves.back().set_requires_grad(true);
        }
        {
          const Replay replay(module, generator, training);
          const EnableGrad enable_grad;
          const Tensor again = forward(leaves);
          again.backward(dy);
        }
        Tensors gradients(count);
        for (size_t i = 0; i < leaves.size(); ++i)
          if (wanted[i]) gradients[i] = leaves[i].grad();
        return gradients;
      });
}

}  // namespace minim::nn
