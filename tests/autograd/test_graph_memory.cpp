// What a graph holds, when it lets go of it, and how deep it may be.
#include <doctest/doctest.h>

#include "autograd/node.h"
#include "autograd/ops.h"
#include "core/memory.h"
#include "core/random.h"

namespace minim {
namespace {

using memory::Category;

constexpr int64_t elements = 1 << 18;
constexpr int64_t big = elements * 4;  // bytes of one activation

Tensor chain(Tensor x, int operations) {
  for (int i = 0; i < operations; ++i)
    x = gelu(x);
  return x;
}

TEST_CASE("activations are freed while the backward passes") {
  Tensor x = randn({elements});
  x.set_requires_grad();
  const int64_t leaves = memory::current();
  {
    memory::reset_peak();
    const Tensor y = sum(chain(x, 20));
    const int64_t forward = memory::peak() - leaves;
    CHECK(forward >= 20 * big);
    memory::reset_peak();
    y.backward();
    // The gradient on its way and the next one come on top of what the forward left.
    CHECK(memory::peak() - leaves <= forward + 2 * big + 4096);
    // Only the loss is left, and the gradient.
    CHECK(memory::current() - leaves <= big + 4096);
  }
  CHECK(memory::current() == leaves + big);
  CHECK(memory::current(Category::gradients) >= big);
}

TEST_CASE("a graph that is dropped frees its activations") {
  Tensor x = randn({elements});
  x.set_requires_grad();
  const int64_t leaves = memory::current();
  Tensor y = chain(x, 10);
  CHECK(memory::current() >= leaves + 10 * big);
  y = Tensor();
  CHECK(memory::current() == leaves);
}

TEST_CASE("a retained graph keeps them") {
  Tensor x = randn({elements});
  x.set_requires_grad();
  const int64_t leaves = memory::current();
  Tensor y = sum(chain(x, 5));
  y.backward(Tensor(), true);
  CHECK(memory::current() >= leaves + 5 * big);
  y = Tensor();
  CHECK(memory::current() == leaves + big);
}

TEST_CASE("nothing is kept under NoGrad") {
  Tensor x = randn({elements});
  x.set_requires_grad();
  const NoGrad no_grad;
  memory::reset_peak();
  const int64_t leaves = memory::current();
  const Tensor y = chain(x, 10);
  CHECK(memory::peak() - leaves <= 2 * big);
}

TEST_CASE("gradients are counted as gradients, to the byte") {
  const int64_t before = memory::current(Category::gradients);
  Tensor a = randn({1000}), b = randn({7});
  a.set_requires_grad();
  b.set_requires_grad();
  sum(concat({a, b})).backward();  // both gradients start as parts of one tensor
  CHECK(memory::current(Category::gradients) - before == 4 * 1007);
}

TEST_CASE("a third identical step allocates nothing") {
#if !defined(__SANITIZE_ADDRESS__)  // whose allocator does not pool
  Tensor w = randn({64, 64}), x = randn({32, 64});
  w.set_requires_grad();
  const auto step = [&] {
    const Tensor loss = mean(gelu(linear(gelu(linear(x, w)), w)));
    loss.backward();
    w.set_grad(Tensor());
  };
  step();
  step();
  const int64_t before = memory::system_allocations();
  step();
  CHECK(memory::system_allocations() == before);
#endif
}

TEST_CASE("100,000 operations deep: backward and destruction need no deep stack") {
  Tensor x = Tensor::full({1}, 1);
  x.set_requires_grad();
  const auto deep = [&x] {
    Tensor y = x;
    for (int i = 0; i < 100000; ++i)
      y = y + x;
    return y;
  };
  SUBCASE("backward") {
    deep().backward();
    CHECK(x.grad().item() == 100001);
  }
  SUBCASE("destruction without a backward") {
    const int64_t before = memory::current();
    deep();
    CHECK(memory::current() == before);
  }
  SUBCASE("destruction after a retained backward") {
    const int64_t before = memory::current();
    deep().backward(Tensor(), true);
    CHECK(memory::current() == before + 4);
  }
}

TEST_CASE("a graph held by closures alone is destroyed without a deep stack") {
  // Each closure holds the handle of the tensor before it, its graph included.
  Tensor y = Tensor::full({1}, 1);
  y.set_requires_grad();
  for (int i = 0; i < 100000; ++i)
    y = record("holding", y.clone(), {y}, [y](const Tensor& dy) -> Tensors { return {dy}; });
  y = Tensor();
  CHECK_FALSE(y.defined());
}

}  // namespace
}  // namespace minim
