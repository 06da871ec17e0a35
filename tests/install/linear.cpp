// A user's program, compiled against the installed library: a Linear learns the class of a number.
#include <autograd/ops.h>
#include <nn/linear.h>
#include <optim/adamw.h>

#include <fmt/core.h>

int main() {
  using namespace minim;
  const Tensor x = Tensor::from<float>({-2, -1, 1, 2}, {4, 1});
  const Tensor labels = Tensor::from<int64_t>({0, 0, 1, 1}, {4});
  const nn::Linear model(1, 2);
  optim::AdamW optimizer(model.parameters(), {.lr = 0.1});
  Tensor loss;
  for (int step = 0; step < 100; ++step) {
    loss = cross_entropy(model.forward(x), labels);
    loss.backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  fmt::print("loss {:.4f}\n", loss.item());
  return loss.item() < 0.01 ? 0 : 1;
}
