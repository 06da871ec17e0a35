// An optimizer of one's own: Lion, whose rule is lion.h. It trains a small network beside AdamW,
// and both say what they keep in memory.

#include <fmt/format.h>

#include "autograd/ops.h"
#include "examples/custom_optimizer/lion.h"
#include "nn/linear.h"
#include "optim/adamw.h"

using namespace minim;

namespace {

// Two layers that are to learn y = x1 * x2.
struct Network : nn::Module {
  explicit Network(nn::Scope at)
      : Module(at), hidden(2, 64, at / "hidden"), out(64, 1, at / "out") {}
  Tensor forward(const Tensor& x) const { return out.forward(gelu(hidden.forward(x))); }
  nn::Linear hidden, out;
};

// Trains a network of the same initial weights; the loss of the last steps over that of the first.
template <class Optimizer>
double train(const typename Optimizer::Options& options) {
  const Network network(nn::Scope({.seed = 1, .initializer_range = 0.5}));
  Optimizer optimizer(network.parameters(), options);
  double first = 0, last = 0;
  constexpr int steps = 400;
  for (int step = 0; step < steps; ++step) {
    const Tensor x = randn({128, 2}, uint64_t(step));
    const Tensor y = slice(x, 1, 0, 1) * slice(x, 1, 1, 2);
    const Tensor loss = mse_loss(network.forward(x), y);
    loss.backward();
    optimizer.step(options.lr * (1.0 - double(step) / steps));
    optimizer.zero_grad();
    if (step < 10) first += loss.item() / 10;
    if (step >= steps - 10) last += loss.item() / 10;
  }
  const optim::StateSize state = optimizer.state_size();
  fmt::print("{:6} loss {:.3f} -> {:.4f}, state {} elements in {} bytes\n", optimizer.name(), first,
             last, state.elements, state.bytes);
  return last / first;
}

}  // namespace

int main() {
  const double adamw = train<optim::AdamW>({.lr = 1e-2, .weight_decay = 0});
  const double lion = train<custom::Lion>({.lr = 3e-3});
  return adamw < 0.1 && lion < 0.1 ? 0 : 1;
}
