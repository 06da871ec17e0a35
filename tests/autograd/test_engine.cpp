#include <doctest/doctest.h>

#include "autograd/node.h"
#include "autograd/ops.h"
#include "core/random.h"

namespace minim {
namespace {

using Values = std::vector<double>;

Tensor leaf(Values values) {
  const auto n = int64_t(values.size());
  Tensor x = Tensor::from(values, {n});
  return x.set_requires_grad();
}

Values grad_of(const Tensor& x) {
  return x.grad().to_vector<double>();
}

TEST_CASE("the gradients of all uses of a tensor are summed") {
  const Tensor x = leaf({2, 3});
  // x^3 + x by four uses: derivative 3 x^2 + 1.
  sum(x * x * x + x).backward();
  CHECK(grad_of(x) == Values{13, 28});
}

TEST_CASE("a diamond passes each node once") {
  const Tensor x = leaf({2});
  int passes = 0;
  const Tensor y = record("shared", x * 3, {x}, [&passes](const Tensor& dy) -> Tensors {
    ++passes;
    return {dy * 3};
  });
  const Tensor left = y * y, right = y * 5;
  sum(left * right).backward();  // 5 y^3: derivative 15 y^2 * 3 = 15 * 36 * 3
  CHECK(grad_of(x) == Values{1620});
  CHECK(passes == 1);
}

TEST_CASE("a chain of diamonds grows the gradient, not the work") {
  const Tensor x = leaf({1});
  Tensor y = x;
  for (int i = 0; i < 40; ++i)
    y = y + y;  // 2^40 paths
  y.backward();
  CHECK(grad_of(x) == Values{0x1p40});
}

TEST_CASE("gradients flow through views to the memory they show") {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6});
  const Tensor columns = transpose(reshape(x, {2, 3}), 0, 1);  // [3, 2]
  sum(select(columns, 0, 1) * 10).backward();                  // elements 1 and 4
  CHECK(grad_of(x) == Values{0, 10, 0, 0, 10, 0});
}

TEST_CASE("gradients of several backwards accumulate") {
  const Tensor x = leaf({1, 2});
  sum(x * x).backward();
  sum(x * 3).backward();
  CHECK(grad_of(x) == Values{5, 7});
}

TEST_CASE("backward takes the gradient of a tensor that is no scalar") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * x;
  CHECK_THROWS_WITH_AS(y.backward(),
                       "backward: a tensor of shape [2] is not a scalar; pass the gradient of the "
                       "loss by it",
                       Error);
  const Tensor dy = Tensor::from({1.0, 10.0}, {2});
  y.backward(dy);
  CHECK(grad_of(x) == Values{2, 40});
  CHECK(dy.to_vector<double>() == Values{1, 10});
  CHECK_THROWS_WITH_AS((x * x).backward(Tensor::zeros({3}, DType::f64)),
                       "backward: the gradient is f64 [3], the tensor is f64 [2]", Error);
  CHECK_THROWS_WITH_AS((x * x).backward(Tensor::zeros({2})),
                       "backward: the gradient is f32 [2], the tensor is f64 [2]", Error);
}

TEST_CASE("a dy that is given stays as it was, also where its memory could be added to") {
  const Tensor x = leaf({1, 2});
  const Tensor dy = Tensor::from({1.0, 10.0}, {2});
  (x + x).backward(dy);
  x.backward(dy);
  CHECK(dy.to_vector<double>() == Values{1, 10});
  CHECK(grad_of(x) == Values{3, 30});
  CHECK(x.grad().storage_id() != dy.storage_id());
}

TEST_CASE("backward needs something to differentiate") {
  const Tensor x = Tensor::full({}, 1);
  CHECK_THROWS_WITH_AS((x * x).backward(),
                       "backward: no tensor that this one was computed from requires a gradient",
                       Error);
  CHECK_FALSE((x * x).requires_grad());
}

TEST_CASE("only leaves that ask for it get a gradient") {
  Tensor frozen = leaf({1, 1});
  frozen.set_requires_grad(false);
  const Tensor x = leaf({3, 4});
  const Tensor y = frozen * x;
  sum(y).backward();
  CHECK_FALSE(frozen.grad().defined());
  CHECK_FALSE(y.grad().defined());
  CHECK(grad_of(x) == Values{1, 1});
  CHECK_THROWS_WITH_AS(
      (x * x).set_requires_grad(),
      "set_requires_grad: a tensor of shape [2] was computed from others; use detach()", Error);
  CHECK_THROWS_WITH_AS(Tensor::zeros({2}, DType::i64).set_requires_grad(),
                       "set_requires_grad: needs f32, f64, f16 or bf16, got i64", Error);
}

TEST_CASE("retain_grad keeps the gradient of a tensor on the way") {
  const Tensor x = leaf({2});
  Tensor y = x * x;
  y.retain_grad();
  sum(y * y + y).backward();  // 2 y + 1 at y = 4
  CHECK(grad_of(y) == Values{9});
  CHECK(grad_of(x) == Values{36});
  CHECK_THROWS_WITH_AS(Tensor::zeros({2}).retain_grad(),
                       "retain_grad: a tensor of shape [2] requires no gradient", Error);
}

TEST_CASE("detach and NoGrad cut the graph") {
  const Tensor x = leaf({2});
  sum(x * x.detach()).backward();
  CHECK(grad_of(x) == Values{2});
  CHECK(x.detach().storage_id() == x.storage_id());
  CHECK(grad_enabled());
  {
    const NoGrad outer;
    { const NoGrad inner; }
    CHECK_FALSE(grad_enabled());
    CHECK_FALSE((x * x).requires_grad());
  }
  CHECK(grad_enabled());
  CHECK((x * x).requires_grad());
}

TEST_CASE("recording goes on after an exception") {
  const Tensor x = leaf({1, 2});
  CHECK_THROWS_AS((x * x).backward(), Error);
  const Tensor broken = record("broken", x.clone(), {x},
                               [](const Tensor&) -> Tensors { fail("broken: on purpose"); });
  CHECK_THROWS_WITH_AS(sum(broken).backward(), "broken: on purpose", Error);
  CHECK(grad_enabled());
}

TEST_CASE("a graph is freed by its backward unless it is retained") {
  const Tensor x = leaf({3});
  const Tensor y = sum(x * x);
  y.backward(Tensor(), true);
  y.backward();
  CHECK(grad_of(x) == Values{12});
  CHECK_THROWS_WITH_AS(y.backward(),
                       "sum: this part of the graph was freed by an earlier backward; pass "
                       "retain_graph = true to that one",
                       Error);
}

TEST_CASE("two results may share a part of the graph that is retained") {
  const Tensor x = leaf({3});
  const Tensor shared = x * x;
  sum(shared * 2).backward(Tensor(), true);
  sum(shared * 5).backward();
  CHECK(grad_of(x) == Values{42});
}

TEST_CASE("an in-place write is refused while a graph is recorded") {
  Tensor x = leaf({1, 2});
  Tensor y = x * x;
  CHECK_THROWS_WITH_AS(
      x.fill_(0),
      "fill_: a tensor of shape [2] that requires a gradient is written in place only "
      "under NoGrad",
      Error);
  CHECK_THROWS_WITH_AS(
      y.copy_(Tensor::zeros({2})),
      "copy_: a tensor of shape [2] that requires a gradient is written in place only "
      "under NoGrad",
      Error);
  Tensor target = Tensor::zeros({2});
  CHECK_THROWS_WITH_AS(
      target.copy_(y),
      "copy_: the source of shape [2] requires a gradient that a copy in place would "
      "lose; use detach()",
      Error);
  target.copy_(y.detach());
  CHECK(target.to_vector<double>() == Values{1, 4});
  const NoGrad no_grad;
  x.fill_(7);
  target.copy_(x);
  CHECK(target.to_vector<double>() == Values{7, 7});
}

TEST_CASE("a backward refuses a saved tensor that was written meanwhile") {
  Tensor x = leaf({1, 2});
  const Tensor y = sum(x * x), z = sum(x + x);
  const int64_t version = x.version();
  x.detach().fill_(5);
  CHECK_THROWS_WITH_AS(y.backward(),
                       fmt::format("mul: a tensor saved for the backward was modified in place "
                                   "(version {}, saved at {})",
                                   version + 1, version)
                           .c_str(),
                       Error);
  z.backward();  // addition saved nothing
  CHECK(grad_of(x) == Values{2, 2});
}

TEST_CASE("a write through a view is noticed as well") {
  const Tensor x = leaf({1, 2, 3, 4});
  const Tensor y = sum(exp(x));
  slice(x.detach(), 0, 1, 2).fill_(0);
  CHECK_THROWS_AS(y.backward(), Error);
}

Tensor returning(const Tensor& x, const Tensors& gradients) {
  return sum(record("custom", x * 1, {x, x}, [gradients](const Tensor&) { return gradients; }));
}

TEST_CASE("the engine checks what a backward returns and names the operation") {
  const Tensor x = leaf({1, 2});
  const Tensor good = Tensor::zeros({2}, DType::f64);
  CHECK_THROWS_WITH_AS(returning(x, {good}).backward(),
                       "custom: backward returned 1 gradients for 2 inputs", Error);
  CHECK_THROWS_WITH_AS(returning(x, {good, Tensor::zeros({3}, DType::f64)}).backward(),
                       "custom: the gradient of input 1 is f64 [3], the input is f64 [2]", Error);
  CHECK_THROWS_WITH_AS(returning(x, {Tensor::zeros({2}), good}).backward(),
                       "custom: the gradient of input 0 is f32 [2], the input is f64 [2]", Error);
  returning(x, {Tensor(), Tensor()}).backward();
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("an operation without a backward throws when a gradient could be asked for") {
  const Tensor x = leaf({1, 3, 2});
  CHECK_THROWS_WITH_AS(
      argmax(x),
      "argmax: has no backward, but its input of shape [3] requires a gradient; call it "
      "under NoGrad or on detach()",
      Error);
  CHECK(argmax(x.detach()).item() == 1);
  const NoGrad no_grad;
  CHECK(argmax(x).item() == 1);
}

TEST_CASE("DetectAnomaly names the operation that makes a NaN") {
  const Tensor x = leaf({-1, 4});
  CHECK_NOTHROW(log(x));
  const Tensor zero = leaf({0, 1});
  {
    const DetectAnomaly detect;
    CHECK_THROWS_WITH_AS(log(x), "log: the result of shape [2] is not finite, the inputs are",
                         Error);
    const Tensor y = sum(sqrt(zero));  // finite, but its slope at 0 is not
    CHECK_THROWS_WITH_AS(y.backward(),
                         "sqrt: the gradient of input 0 of shape [2] is not finite, dy is", Error);
  }
  CHECK_NOTHROW(sum(sqrt(zero)).backward());
}

TEST_CASE("an operation may return its input") {
  const Tensor x = leaf({1, 2});
  const Tensor y = record("same", x, {x}, [](const Tensor& dy) -> Tensors { return {dy * 4}; });
  CHECK_FALSE(y.is_same(x));
  CHECK(x.is_leaf());
  sum(y).backward();
  CHECK(grad_of(x) == Values{4, 4});
}

TEST_CASE("set_grad takes a gradient of the right shape and dtype") {
  Tensor x = leaf({1, 2});
  x.set_grad(Tensor::from({5.0, 6.0}, {2}));
  sum(x).backward();
  CHECK(grad_of(x) == Values{6, 7});
  CHECK_THROWS_WITH_AS(x.set_grad(Tensor::zeros({2})),
                       "set_grad: the gradient is f32 [2], the tensor is f64 [2]", Error);
  x.set_grad(Tensor());
  CHECK_FALSE(x.grad().defined());
}

TEST_CASE("gradients of two leaves never share memory") {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4});
  sum(a + b).backward();
  CHECK(a.grad().storage_id() != b.grad().storage_id());
  sum(a * 1).backward();
  CHECK(grad_of(a) == Values{2, 2});
  CHECK(grad_of(b) == Values{1, 1});
}

}  // namespace
}  // namespace minim
