#include <doctest/doctest.h>

#include "optim/adamw.h"
#include "optim/state_size.h"
#include "tests/optim/accounting.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

TEST_CASE("state size: AdamW keeps two f32 numbers per weight: 8 bytes") {
  const ParameterSpec w{"w", {3, 5}, DType::f32};
  const StateSize size = state_size<AdamWRule>({&w, 1});
  CHECK(size.elements == 2 * 15);
  CHECK(size.bytes == 8 * 15);
  CHECK(size.numbers == 1);  // the step
  REQUIRE(size.entries.size() == 2);
  CHECK(size.entries[1].key == "exp_avg_sq");
  CHECK(size.entries[1].shape == Shape{3, 5});
  CHECK(size.entries[1].bytes == 60);
}

TEST_CASE("state size: amsgrad keeps three, and f64 weights have f64 moments, bf16 ones f32") {
  const auto bytes = [](DType dtype, bool amsgrad) {
    const ParameterSpec w{"w", {10}, dtype};
    return state_size<AdamWRule>({&w, 1}, {.amsgrad = amsgrad}).bytes;
  };
  CHECK(bytes(DType::f32, true) == 120);
  CHECK(bytes(DType::f64, false) == 160);
  CHECK(bytes(DType::bf16, false) == 80);
  CHECK(bytes(DType::f16, true) == 120);
}

TEST_CASE("state size: DistilBERT under AdamW: 131,566,188 elements, as PyTorch's state holds") {
  const auto parameters = distilbert();
  CHECK(parameters.size() == 104);
  for (const bool amsgrad : {false, true}) {
    const StateSize size = state_size<AdamWRule>(parameters, {.amsgrad = amsgrad});
    const auto torch = measured(amsgrad ? "torch.optim.AdamW amsgrad" : "torch.optim.AdamW");
    CHECK(size.elements_with_numbers() == torch["elements"]);
    // PyTorch's step counters are f32 tensors of 4 bytes each; ours lie outside the tensors.
    CHECK(size.bytes + 4 * 104 == torch["bytes"]);
  }
  CHECK(state_size<AdamWRule>(parameters).elements_with_numbers() == 131566188);
  CHECK(state_size<AdamWRule>(parameters).bytes == 8 * int64_t(65783042));
}

TEST_CASE("state size: what a step allocates is what was predicted, to the byte") {
  for (const bool amsgrad : {false, true})
    for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      NamedTensors parameters;
      for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{1}, Shape{7}, Shape{33, 65},
                                 Shape{2, 3, 4}, Shape{40000}}) {
        Tensor p = Tensor::zeros(shape, dtype);
        p.set_requires_grad();
        parameters.push_back({fmt::format("p{}", parameters.size()), p});
      }
      const int64_t before = memory::current(memory::Category::optimizer_state);
      AdamW optimizer(parameters, {.amsgrad = amsgrad});
      const StateSize predicted = state_size(optimizer);
      CHECK(memory::current(memory::Category::optimizer_state) == before);
      for (const NamedTensor& p : parameters)
        set_gradient(p.tensor, 1.0);
      optimizer.step();
      CHECK(memory::current(memory::Category::optimizer_state) - before == predicted.bytes);
      optimizer.step();
      CHECK(memory::current(memory::Category::optimizer_state) - before == predicted.bytes);
      CHECK(state_size(optimizer).bytes == predicted.bytes);
    }
}

TEST_CASE("state size: a frozen parameter needs no state") {
  const Tensor trained = scalar(1.0), frozen = Tensor::zeros({100});
  CHECK(state_size(AdamW({{"trained", trained}, {"frozen", frozen}})).bytes == 16);
}
