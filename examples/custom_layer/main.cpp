// A layer of one's own: RMS norm, and with it the gated feed-forward of recent language models. It
// is checked against finite differences, then trained on a function that it has to learn.

#include <fmt/format.h>

#include "autograd/gradcheck.h"
#include "nn/linear.h"
#include "optim/adamw.h"

using namespace minim;

// Divides each row by its root mean square (Zhang & Sennrich, 2019).   x, y: [.., dim]
class RmsNorm : public nn::Module {
 public:
  explicit RmsNorm(int64_t dim, nn::Scope at = nn::Scope(), double eps = 1e-6)
      : Module(at), weight(at.parameter("weight", {dim}, nn::Init::ones())), eps(eps) {}

  Tensor forward(const Tensor& x) const {
    return x * rsqrt(mean(square(x), {-1}, keep_dim) + eps) * weight;
  }

  Tensor weight;
  double eps;
};

// y = x + down(silu(gate(norm(x))) * up(norm(x))) (Shazeer, 2020).   x, y: [.., dim]
class GatedFeedForward : public nn::Module {
 public:
  GatedFeedForward(int64_t dim, int64_t hidden, nn::Scope at = nn::Scope())
      : Module(at),
        norm(dim, at / "norm"),
        gate(dim, hidden, at / "gate_proj"),
        up(dim, hidden, at / "up_proj"),
        down(hidden, dim, at / "down_proj") {}

  Tensor forward(const Tensor& x) const {
    const Tensor h = norm.forward(x);
    return x + down.forward(silu(gate.forward(h)) * up.forward(h));
  }

  RmsNorm norm;
  nn::Linear gate, up, down;
};

int main() {
  const GatedFeedForward layer(8, 32, nn::Scope({.seed = 1, .initializer_range = 0.2}) / "mlp");
  for (const NamedTensor& parameter : layer.parameters())
    fmt::print("{:22} {}\n", parameter.name, parameter.tensor.shape());

  const RmsNorm in_double(5, nn::Scope({.dtype = DType::f64}));
  const GradcheckResult checked =
      gradcheck([&](const Tensors& inputs) { return in_double.forward(inputs[0]); },
                {randn({3, 5}, 1, DType::f64)});
  fmt::print("gradcheck of RmsNorm: {}, worst error {:.1e}\n", checked.ok ? "ok" : "failed",
             checked.worst_error);

  // To learn: each element times its right neighbour.
  optim::AdamW optimizer(layer.parameters(), {.lr = 5e-3, .weight_decay = 0});
  double first = 0, last = 0;
  for (int step = 0; step < 500; ++step) {
    const Tensor x = randn({64, 8}, uint64_t(step));
    const Tensor neighbour = concat({slice(x, 1, 1, 8), slice(x, 1, 0, 1)}, 1);
    const Tensor loss = mse_loss(layer.forward(x), x * neighbour);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
    last = loss.item();
    if (step == 0) first = last;
  }
  fmt::print("loss {:.3f} -> {:.3f}\n", first, last);
  return checked.ok && last < first / 2 ? 0 : 1;
}
