#include <doctest/doctest.h>

#include "optim/adam8bit.h"
#include "optim/adamw.h"
#include "optim/moments.h"
#include "optim/quantize.h"
#include "optim/sgd.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

// A run that changes from f32 moments to codes, and back.

namespace {

NamedTensors two_parameters(DType dtype = DType::f32) {
  NamedTensors parameters = {{"w", Tensor::from(noise(5000, 2), {50, 100})},
                             {"b", Tensor::from(noise(80, 3), {80})},
                             {"unused", Tensor::from(noise(80, 5), {80})}};
  for (NamedTensor& p : parameters) {
    p.tensor = convert(p.tensor, dtype).clone();
    p.tensor.set_requires_grad();
  }
  return parameters;
}

void take_step(AnyOptimizer& optimizer, const NamedTensors& parameters, int step) {
  for (const NamedTensor& p : parameters)
    if (p.name != "unused")
      Tensor(p.tensor).set_grad(convert(
          Tensor::from(noise(p.tensor.numel(), 7 + step), p.tensor.shape()), p.tensor.dtype()));
  optimizer.step();
}

}  // namespace

TEST_CASE("moments: AdamW's become the codes that quantize_blockwise gives") {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const NamedTensors parameters = two_parameters(dtype);
    AdamW f32(parameters);
    take_step(f32, parameters, 0);
    take_step(f32, parameters, 1);
    AdamW8bit coded(parameters, {.block_size = 64, .code_map = "linear"});
    copy_moments(f32, coded);
    const auto& state = coded.state("w");
    const Quantized m = quantize_blockwise(f32.state("w").exp_avg, code_map("linear", true), 64);
    const Quantized v =
        quantize_blockwise(f32.state("w").exp_avg_sq, code_map("linear", false, true), 64);
    CHECK(state.step == 2);
    CHECK(state.exp_avg.to_vector<int64_t>() == m.codes.to_vector<int64_t>());
    CHECK(state.exp_avg_absmax.to_vector<float>() == m.absmax.to_vector<float>());
    CHECK(state.exp_avg_sq.to_vector<int64_t>() == v.codes.to_vector<int64_t>());
    CHECK(state.exp_avg_sq_absmax.to_vector<float>() == v.absmax.to_vector<float>());
    // Small parameters have f32 moments in both; one without gradient has none in either.
    CHECK(coded.state("b").exp_avg.to_vector<double>() ==
          f32.state("b").exp_avg.to_vector<double>());
    CHECK(coded.state_dict("unused").empty());
    CHECK_FALSE(moments_of(coded, "unused").exp_avg.defined());
    take_step(coded, parameters, 2);
    CHECK(coded.state("w").step == 3);
  }
}

TEST_CASE("moments: codes become the f32 numbers that they stand for") {
  for (const std::string behaviour : {"minim", "bitsandbytes"}) {
    const NamedTensors parameters = two_parameters();
    Adam8bit coded(parameters, {.behaviour = behaviour});
    take_step(coded, parameters, 0);
    AdamW f32(parameters);
    copy_moments(coded, f32);
    const auto& state = coded.state("w");
    const MomentMaps maps = moment_maps(behaviour, "dynamic");
    const auto decoded = f32.state("w").exp_avg.to_vector<float>();
    const auto square = f32.state("w").exp_avg_sq.to_vector<float>();
    const auto codes = state.exp_avg.to_vector<uint8_t>();
    const auto square_codes = state.exp_avg_sq.to_vector<uint8_t>();
    for (size_t i = 0; i < decoded.size(); ++i) {
      CHECK(decoded[i] ==
            maps.exp_avg.value(codes[i]) * state.exp_avg_absmax.values<float>()[i / 256]);
      CHECK(square[i] == maps.exp_avg_sq.value(square_codes[i]) *
                             state.exp_avg_sq_absmax.values<float>()[i / 256]);
    }
    CHECK(f32.state("w").step == 1);
    // And are coded as they were: whatever a block's largest is, the second moment's is positive.
    Adam8bit again(parameters, {.behaviour = behaviour});
    copy_moments(f32, again);
    CHECK(again.state("w").exp_avg_sq.to_vector<int64_t>() ==
          state.exp_avg_sq.to_vector<int64_t>());
  }
}

TEST_CASE("moments: what has no place in the other optimizer is refused") {
  const NamedTensors parameters = two_parameters();
  AdamW f32(parameters), with_amsgrad(parameters, {.amsgrad = true});
  AdamW8bit coded(parameters);
  Sgd sgd(parameters);
  CHECK(error_of([&] { copy_moments(sgd, coded); }) == "moments: sgd does not keep Adam's two");
  CHECK(error_of([&] { copy_moments(f32, sgd); }) == "moments: sgd does not keep Adam's two");
  CHECK(error_of([&] { copy_moments(with_amsgrad, coded); }) ==
        "moments: adamw with amsgrad keeps a third, which cannot be copied");
  CHECK(error_of([&] { copy_moments(coded, with_amsgrad); }) ==
        "moments: adamw with amsgrad keeps a third, which cannot be copied");
  AdamW fewer(NamedTensors{parameters[0]});
  CHECK(error_of([&] {
          copy_moments(fewer, coded);
        }).starts_with("adamw: none of the 1 parameters is named b"));
}
