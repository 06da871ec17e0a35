#include <cmath>
#include <numeric>

#include <doctest/doctest.h>

#include "core/memory.h"
#include "core/memory_advice.h"
#include "core/tensor.h"

namespace minim {
namespace {

using memory::Category;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool pooling = false;
#else
constexpr bool pooling = true;
#endif

TEST_CASE("bytes are counted by category, as many as the tensor holds") {
  const int64_t before = memory::current(Category::weights), total = memory::current();
  {
    const memory::Scope scope(Category::weights);
    const Tensor x = Tensor::empty({3, 5}, DType::f64);
    CHECK(memory::current(Category::weights) == before + 120);
    CHECK(memory::current() == total + 120);
    x.count_as(Category::optimizer_state);
    CHECK(memory::current(Category::weights) == before);
    CHECK(memory::current() == total + 120);
    const Tensor view = x.view({5}, {1});
    CHECK(memory::current() == total + 120);
  }
  CHECK(memory::current(Category::weights) == before);
  CHECK(memory::current() == total);
}

TEST_CASE("scopes nest and activations are the default") {
  CHECK(memory::Scope::category() == Category::activations);
  {
    const memory::Scope outer(Category::data);
    {
      const memory::Scope inner(Category::workspace);
      CHECK(memory::Scope::category() == Category::workspace);
    }
    CHECK(memory::Scope::category() == Category::data);
  }
  CHECK(memory::Scope::category() == Category::activations);
}

TEST_CASE("the total peak is that of the sum, not the sum of the peaks") {
  memory::reset_peak();
  const int64_t start = memory::current(), start_data = memory::current(Category::data);
  const auto use = [](Category category, int64_t n) {
    const memory::Scope scope(category);
    return Tensor::empty({n}, DType::u8);
  };
  use(Category::data, 1000);
  use(Category::weights, 700);
  { const Tensor a = use(Category::data, 600), b = use(Category::weights, 500); }
  CHECK(memory::peak() - start == 1100);
  CHECK(memory::peak(Category::data) - start_data == 1000);
  memory::reset_peak();
  CHECK(memory::peak() == memory::current());
}

TEST_CASE("moving bytes to another category is no new peak") {
  const Tensor x = Tensor::empty({1000}, DType::u8);
  memory::reset_peak();
  const int64_t before = memory::current();
  x.count_as(Category::gradients);
  CHECK(memory::peak() == before);
}

TEST_CASE("categories have names") {
  std::string all;
  for (size_t c = 0; c < memory::categories; ++c)
    all += std::string(name_of(Category(c))) + ";";
  CHECK(all == "weights;gradients;optimizer state;activations;workspace;data;");
}

// What a training step does to the allocator: many sizes, freed in another order.
void step(int64_t length) {
  Tensors alive;
  for (int64_t i = 1; i < 40; ++i) {
    alive.push_back(Tensor::empty({length, i * 7}));
    if (i % 3 == 0) alive.erase(alive.begin() + i / 3);
  }
}

TEST_CASE("a steady step asks nothing of the system") {
  if (!pooling) return;
  step(64);
  step(64);
  const int64_t before = memory::system_allocations();
  step(64);
  CHECK(memory::system_allocations() == before);
}

TEST_CASE("a batch a little shorter reuses the blocks of the longer one") {
  if (!pooling) return;
  memory::release_pool();
  Tensor::empty({1000, 100});
  const int64_t before = memory::system_allocations();
  Tensor::empty({990, 100});  // less than 1/8 smaller, in the same size class
  CHECK(memory::system_allocations() == before);
}

TEST_CASE("released and poisoned pools") {
  if (!pooling) return;
  Tensor::empty({77});
  memory::poison_pool(0xff);
  int64_t before = memory::system_allocations();
  const Tensor poisoned = Tensor::empty({77});
  CHECK(memory::system_allocations() == before);
  for (float v : poisoned.values<float>())
    CHECK(std::isnan(v));
  memory::release_pool();
  Tensor::empty({33});
  CHECK(memory::system_allocations() == before + 1);
}

TEST_CASE("memory is aligned to 64 bytes, tensors of no elements too") {
  for (int64_t n : {0, 1, 16, 17, 1000, 4097})
    CHECK(reinterpret_cast<uintptr_t>(Tensor::empty({n}).raw()) % 64 == 0);
}

TEST_CASE("memory that the system refuses is an error that lists what is in use") {
  const memory::Scope scope(Category::data);
  const Tensor held = Tensor::empty({int64_t(3) << 20}, DType::u8);
  const int64_t before = memory::current();
  const auto refused = [](int64_t bytes) {
    return fmt::format(
        "memory: the system refused {} bytes; in use: data 3.0 MiB; a smaller batch or shorter "
        "sequences need less",
        bytes);
  };
  // 2^62 bytes and a few are refused without asking, 2^50 by the system (or, as a mistake, by
  // ASan).
  const int64_t most = int64_t(1) << 59, many = int64_t(1) << 50;
  CHECK_THROWS_WITH_AS(Tensor::empty({most + 1}, DType::f64), refused(8 * most + 8).c_str(), Error);
  if (pooling) CHECK_THROWS_WITH_AS(Tensor::empty({many}, DType::u8), refused(many).c_str(), Error);
  CHECK(memory::current() == before);

  // Whoever knows of options that would help says so; the innermost does, and no error of its own.
  const auto error_with = [&](const memory::Advice::Options& options) {
    const memory::Advice advice(options);
    try {
      Tensor::empty({most + 1}, DType::f64);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const memory::Advice outer([]() -> std::vector<std::string> { return {"a larger machine"}; });
  CHECK(error_with([] {
          return std::vector<std::string>{"this", "that"};
        }).ends_with("; a smaller batch, shorter sequences, this or that need less"));
  CHECK(error_with([]() -> std::vector<std::string> {
          fail("not now");
        }).ends_with("; a smaller batch or shorter sequences need less"));
  CHECK_THROWS_WITH_AS(
      Tensor::empty({most + 1}, DType::f64),
      doctest::Contains("; a smaller batch, shorter sequences or a larger machine need less"),
      Error);
}

}  // namespace
}  // namespace minim
