#include <doctest/doctest.h>

#include "core/memory.h"
#include "nn/recompute.h"
#include "nn/transformer_block.h"

using namespace minim;

namespace {

// Two blocks on two sequences of 3 and 5 tokens, with dropout.
struct Stack : nn::Module {
  explicit Stack(nn::Scope at = nn::Scope())
      : Module(at), first(options(), at / 0), second(options(), at / 1) {}

  static nn::TransformerBlockOptions options() {
    return {.dim = 8, .heads = 2, .hidden_dim = 32, .dropout = 0.2f, .attention_dropout = 0.1f};
  }

  Tensor forward(const Tensor& x, bool recomputes) const {
    const Tensor offsets = Tensor::from<int32_t>({0, 3, 8}, {3});
    const AttentionRows rows{offsets, offsets.view({2}, {1}), offsets.view({2}, {1}, 1)};
    Tensor y = x * 2.0;  // as in a model, the first block's input is no leaf
    for (const nn::TransformerBlock* block : {&first, &second}) {
      const auto run = [block, rows](const Tensors& t) { return block->forward(t[0], t[0], rows); };
      y = recomputes ? nn::recompute(*block, run, {y}) : run({y});
    }
    return y;
  }

  nn::TransformerBlock first, second;
};

Tensor input() {
  std::vector<float> values;
  for (int i = 0; i < 64; ++i)
    values.push_back(float((i * 37) % 64) / 32 - 1);
  return Tensor::from(values, {8, 8});
}

// Value, gradient of the input (where wanted) and of every parameter after two backwards, and
// where the generator stands.
struct Outcome {
  std::vector<std::vector<float>> numbers;
  uint64_t offset = 0;
  int64_t kept = 0;  // bytes between forward and backward
  bool operator==(const Outcome& other) const {
    return numbers == other.numbers && offset == other.offset;
  }
};

Outcome outcome(bool recomputes, bool input_wants_gradient) {
  const Stack stack;
  stack.train();
  Tensor x = input();
  x.set_requires_grad(input_wants_gradient);
  Outcome result;
  for (int step = 0; step < 2; ++step) {
    const int64_t before = memory::current();
    const Tensor y = stack.forward(x, recomputes);
    result.kept = memory::current() - before;
    result.numbers.push_back(y.to_vector<float>());
    sum(y * y * y).backward();
  }
  if (input_wants_gradient) result.numbers.push_back(x.grad().to_vector<float>());
  for (const NamedTensor& parameter : stack.parameters())
    result.numbers.push_back(parameter.tensor.grad().to_vector<float>());
  result.offset = stack.generator().offset;
  return result;
}

}  // namespace

TEST_CASE("recomputed blocks give the same gradients to the last bit, dropout included") {
  CHECK(outcome(true, true) == outcome(false, true));
}

TEST_CASE("parameters get their gradients where the input wants none") {
  CHECK(outcome(true, false) == outcome(false, false));
}

TEST_CASE("between forward and backward only inputs of recomputed blocks are kept") {
  // The inputs of both blocks and the output, beside the offsets.
  const int64_t rows = 3 * 8 * 8 * 4;
  const int64_t kept = outcome(true, true).kept;
  CHECK(kept >= rows);
  CHECK(kept <= rows + 64);
  CHECK(outcome(false, true).kept > 4 * rows);
}

TEST_CASE("the mode at the time of the forward is the one that is replayed") {
  const Stack stack;
  stack.train();
  Tensor x = input();
  x.set_requires_grad(true);
  const Tensor y = stack.forward(x, true);
  const uint64_t offset = stack.generator().offset;
  stack.eval();
  sum(y * y).backward();
  CHECK_FALSE(stack.training());
  CHECK(stack.generator().offset == offset);
  const Stack plain;
  plain.train();
  Tensor same = input();
  same.set_requires_grad(true);
  const Tensor z = plain.forward(same, false);
  sum(z * z).backward();
  CHECK(x.grad().to_vector<float>() == same.grad().to_vector<float>());
}

TEST_CASE("without a gradient to compute nothing is recorded") {
  const Stack stack;
  const NoGrad no_grad;
  CHECK_FALSE(stack.forward(input(), true).requires_grad());
}
