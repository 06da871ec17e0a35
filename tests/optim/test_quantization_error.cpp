#include <doctest/doctest.h>

#include "optim/adam8bit.h"
#include "optim/quantization_error.h"
#include "tests/optim/optim_testing.h"

// How far codes are from what they were made of.
using namespace minim;
using namespace minim::optim;
using namespace minim::test;

TEST_CASE("reach of a code: half the gap to its neighbours") {
  // Linear, signed: 255 values, 1/127 apart, so each reaches 1/254 to both sides; the ends, which
  // are 1 and -1, reach inwards alone.
  const auto reach = code_reach(code_map("linear", true));
  for (const int code : {1, 64, 127, 200, 253}) {
    CAPTURE(code);
    CHECK(reach[size_t(code)].below == doctest::Approx(1.0 / 254).epsilon(1e-4));
    CHECK(reach[size_t(code)].above == doctest::Approx(1.0 / 254).epsilon(1e-4));
  }
  CHECK(reach[0].below == 0);
  CHECK(reach[254].above == 0);
  CHECK(reach[254].below == doctest::Approx(1.0 / 254).epsilon(1e-4));
}

TEST_CASE("reach of a code: the dynamic map is fine near 0, and has no -1") {
  const CodeMap& map = code_map("dynamic", true);
  const auto reach = code_reach(map);
  // The lowest value is -0.99297 = -(0.1 + 63.5 * 0.9 / 64): numbers down to -1 get it.
  CHECK(map.value(0) == doctest::Approx(-0.9929688).epsilon(1e-6));
  CHECK(reach[0].below == doctest::Approx(1 - 0.9929688).epsilon(1e-4));
  CHECK(reach[map.nearest(0.5f)].above == doctest::Approx(0.9 / 128).epsilon(1e-3));
  // 32 values between 0.01 and 0.1.
  CHECK(reach[map.nearest(0.05f)].above == doctest::Approx(0.09 / 64).epsilon(1e-3));
}

TEST_CASE("reach of a code: under the floor rule the code of zero means exactly zero") {
  const CodeMap& map = code_map("dynamic", false, true);
  const auto reach = code_reach(map);
  CHECK(map.value(0) == 0);
  CHECK(reach[0].above == 0);
  CHECK(reach[1].below == doctest::Approx(map.value(1)).epsilon(1e-6));
}

TEST_CASE("no element is farther off than the bound of its block, in any map") {
  const Tensor x = Tensor::from(noise(1000, 5), {10, 100});
  const Tensor squares = Tensor::from(noise(1000, 5), {10, 100});
  for (float& value : squares.values<float>())
    value *= value * 1e-5f;
  for (const std::string_view name : {"dynamic", "linear", "fp8_e4m3", "fp8_e5m2", "bitsandbytes"})
    for (const bool is_signed : {true, false}) {
      CAPTURE(name);
      CAPTURE(is_signed);
      const CodeMap& map = code_map(name, is_signed, !is_signed);
      const Tensor& exact = is_signed ? x : squares;
      const Quantized codes = quantize_blockwise(exact, map, 64);
      const QuantizationError bound = quantization_error_bound(codes, map);
      const QuantizationError error = quantization_error(exact, codes, map);
      REQUIRE(bound.worst.size() == 16);
      REQUIRE(error.worst.size() == 16);
      for (size_t b = 0; b < 16; ++b)
        CHECK(error.worst[b] <= bound.worst[b]);
      // Not much farther either: 64 numbers a block come near to the middle of the widest gap.
      CHECK(error.largest() > 0.25 * bound.largest());
      CHECK(error.rms <= bound.largest());
    }
}

TEST_CASE("numbers that lie evenly between codes have the rms that the bound's formula says") {
  // 100,000 numbers, evenly spread from -1 to 1: their rms error in equal steps of h = 1/127 is
  // h / sqrt(12).
  std::vector<float> values;
  for (int i = 0; i <= 100000; ++i)
    values.push_back(float(i) / 50000.0f - 1.0f);
  const Tensor x = Tensor::from(values, {int64_t(values.size())});
  const CodeMap& map = code_map("linear", true);
  Quantized codes = quantize_blockwise(x, map, 4096);
  const QuantizationError exact = quantization_error(x, codes, map);
  const QuantizationError bound = quantization_error_bound(codes, map);
  CHECK(bound.rms == doctest::Approx(exact.rms).epsilon(0.01));
}

TEST_CASE("what was decoded and coded again has no error") {
  // Without negative numbers each block's largest has the code of 1, so that scales stay.
  Tensor x = Tensor::from(noise(500, 7), {500});
  for (float& value : x.values<float>())
    value = std::abs(value);
  const CodeMap& map = code_map("dynamic", false);
  const Tensor decoded = dequantize_blockwise(quantize_blockwise(x, map, 128), map);
  const Quantized again = quantize_blockwise(decoded, map, 128);
  CHECK(quantization_error(decoded, again, map).largest() == 0);
  CHECK(error_of([&] { quantization_error(Tensor::zeros({3}), again, map); }) ==
        "quantization_error: numbers of shape [3] for codes of [500]");
}

TEST_CASE("blocks of zeros and of infinite scales add nothing") {
  const CodeMap& map = code_map("dynamic", true);
  const Quantized zeros = quantize_blockwise(Tensor::zeros({64}), map, 64);
  CHECK(quantization_error_bound(zeros, map).largest() == 0);
  const Quantized infinite = quantize_blockwise(Tensor::full({64}, INFINITY), map, 64);
  CHECK(quantization_error_bound(infinite, map).largest() == 0);
  const Quantized none = quantize_blockwise(Tensor::zeros({0}), map, 64);
  CHECK(quantization_error_bound(none, map).largest() == 0);
}
