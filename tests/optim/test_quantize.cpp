#include <bit>
#include <cmath>
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/parallel.h"
#include "core/safetensors.h"
#include "optim/quantize.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

// Block-wise quantisation: a block's largest magnitude becomes its scale, every number over it a
// byte.

namespace {

Tensor vector(const std::vector<float>& values) {
  return Tensor::from(values, {int64_t(values.size())});
}

std::vector<float> round_trip(const std::vector<float>& values, const CodeMap& map,
                              int64_t block = 256) {
  return dequantize_blockwise(quantize_blockwise(vector(values), map, block), map)
      .to_vector<float>();
}

// Mean of |got - expected| / |expected| over elements [first, last).
double mean_relative_error(const std::vector<float>& got, const std::vector<float>& expected,
                           size_t first, size_t last) {
  double sum = 0;
  for (size_t i = first; i < last; ++i)
    sum += std::abs(double(got[i]) - double(expected[i])) / std::abs(double(expected[i]));
  return sum / double(last - first);
}

// Numbers of both signs with magnitudes from 1/2 to 1.
std::vector<float> similar_numbers(int64_t n) {
  std::vector<float> values = noise(n, 1);
  for (float& x : values)
    x = x / 2 + (x < 0 ? -0.5f : 0.5f);
  return values;
}

// Within one unit in the last place; NaN and infinities must be the same.
bool within_an_ulp(float got, float expected) {
  if (std::isnan(expected)) return std::isnan(got);
  return got >= std::nextafter(expected, -INFINITY) && got <= std::nextafter(expected, INFINITY);
}

}  // namespace

TEST_CASE("quantize: four numbers by hand") {
  const CodeMap& map = code_map("dynamic", true);
  const Quantized q = quantize_blockwise(vector({4, -2, 1, 0}), map);
  // Over the largest magnitude, 4: 1, -0.5, 0.25, 0. In the upper decade, whose codes are the
  // middles of 64 parts of 0.9 / 64 = 0.0140625 each, 0.5 lies in part 28, with the middle 0.1 +
  // 28.5 * 0.0140625 = 0.50078125, and 0.25 in part 10, with the middle 0.24765625.
  CHECK(q.absmax.to_vector<float>() == std::vector<float>{4});
  CHECK(q.codes.to_vector<uint8_t>() == std::vector<uint8_t>{255, 126 - 63 - 28, 191 + 10, 127});
  CHECK(dequantize_blockwise(q, map).to_vector<float>() ==
        std::vector<float>{4, float(-4 * 0.50078125), float(4 * 0.24765625), 0});
}

TEST_CASE("quantize: what is kept is a byte per number and four bytes per block") {
  const Quantized q = quantize_blockwise(Tensor::zeros({100, 10}), code_map("dynamic", true), 64);
  CHECK(q.codes.shape() == Shape{100, 10});
  CHECK(q.codes.bytes() == 1000);
  CHECK(q.absmax.shape() == Shape{16});  // 15 full ones and 40 numbers
}

TEST_CASE("quantize: no number is off by more than half a part, 0.7 % of its block's largest") {
  const std::vector<float> values = noise(20000, 3);
  const CodeMap& map = code_map("dynamic", true);
  const Tensor x = vector(values);
  const Quantized q = quantize_blockwise(x, map);
  const auto back = dequantize_blockwise(q, map).to_vector<float>();
  const auto absmax = q.absmax.to_vector<float>();
  for (size_t i = 0; i < values.size(); ++i)
    CHECK(std::abs(back[i] - values[i]) <= 0.0070313 * absmax[i / 256]);
  // bitsandbytes asks for a mean below 0.0036 of numbers spread evenly over [-1, 1], and without
  // sign below 0.0023.
  const auto mean_error = [&](const std::vector<float>& numbers, const CodeMap& with) {
    const auto after = round_trip(numbers, with);
    double sum = 0;
    for (size_t i = 0; i < numbers.size(); ++i)
      sum += std::abs(double(after[i]) - double(numbers[i]));
    return sum / double(numbers.size());
  };
  CHECK(mean_error(values, map) < 0.0036);
  std::vector<float> positive = values;
  for (float& value : positive)
    value = std::abs(value);
  CHECK(mean_error(positive, code_map("dynamic", false)) < 0.0023);
}

TEST_CASE("quantize: the relative error grows slowly towards small numbers, decade by decade") {
  // Worst where a decade begins: half a part, 0.45 / 2^i, over the boundary behind the first code,
  // 0.1 + 0.9 / 2^i: 6.2 % in the upper decade (i = 6), 11 % in the next, and so on. The boundary
  // between the two lowest codes lies between decades, 1.9e-6, and is off by 71 %.
  const double bound[] = {0.062, 0.11, 0.18, 0.28, 0.47, 0.72};
  const CodeMap& map = code_map("dynamic", true);
  for (int decade = 0; decade < 6; ++decade)
    for (int k = 0; k < 1000; ++k) {
      const float x = float(std::pow(10.0, -decade - k / 1000.0));
      CAPTURE(x);
      CHECK(std::abs(map.value(map.nearest(x)) - x) <= bound[decade] * double(x));
    }
}

TEST_CASE("quantize: an outlier spoils its block: all of 2,048 numbers, or 255 of them") {
  std::vector<float> values = similar_numbers(2048);
  const CodeMap& map = code_map("dynamic", true);
  const auto clean = round_trip(values, map, 256);
  CHECK(mean_relative_error(clean, values, 0, 2048) < 0.006);
  values[100] = 1e6f;
  // Over 1e6 all others are between 5e-7 and 1e-6: they share the lowest code, 5.5e-7.
  const auto large = round_trip(values, map, 2048), small = round_trip(values, map, 256);
  CHECK(mean_relative_error(large, values, 101, 2048) > 0.2);
  CHECK(mean_relative_error(small, values, 101, 256) > 0.2);
  for (size_t i = 256; i < 2048; ++i)
    CHECK(small[i] == clean[i]);
  CHECK(small[100] == 1e6f);
}

TEST_CASE("quantize: linear codes lose what is small, dynamic codes keep it") {
  // A hundredth, a thousandth, ... of the largest. Linear codes are 1/127 = 0.0079 apart.
  const std::vector<float> values = {1, 1e-2f, 1e-3f, 1e-4f, 1e-5f};
  CHECK(round_trip(values, code_map("linear", true)) ==
        std::vector<float>{1, float(1 / 127.0), 0, 0, 0});
  const auto dynamic = round_trip(values, code_map("dynamic", true));
  for (size_t i = 1; i < values.size(); ++i) {
    CHECK(dynamic[i] > 0.7f * values[i]);
    CHECK(dynamic[i] < 1.3f * values[i]);
  }
}

TEST_CASE("quantize: any number of elements; each block is what it would be alone") {
  const CodeMap& map = code_map("dynamic", true);
  for (const int64_t block : {64, 256, 1024, 4096})
    for (const int64_t n : {0, 1, 63, 64, 65, 255, 256, 257, 4095, 4096, 4097, 40001}) {
      const std::vector<float> values = noise(n, 5);
      const Quantized whole = quantize_blockwise(vector(values), map, block);
      CHECK(whole.absmax.numel() == (n + block - 1) / block);
      const auto codes = whole.codes.to_vector<uint8_t>();
      bool equal = true;
      for (int64_t first = 0; first < n; first += block) {
        const auto begin = values.begin() + first;
        const std::vector<float> part(begin, begin + std::min(block, n - first));
        const Quantized alone = quantize_blockwise(vector(part), map, block);
        const auto its_codes = alone.codes.to_vector<uint8_t>();
        equal = equal && std::equal(its_codes.begin(), its_codes.end(), codes.begin() + first);
        equal = equal && alone.absmax.item() == whole.absmax.values<float>()[size_t(first / block)];
      }
      CHECK(equal);
    }
}

TEST_CASE("quantize: coding what was decoded changes nothing more") {
  for (const std::string_view name : code_map_names())
    for (const bool is_signed : {true, false}) {
      const CodeMap& map = code_map(name, is_signed);
      std::vector<float> values = noise(1000, 7);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = i % 256 == 0 ? 3.0f : is_signed ? values[i] : std::abs(values[i]);
      const auto once = round_trip(values, map);
      CHECK(round_trip(once, map) == once);
    }
  // Where the largest is negative a block shrinks each time, since the dynamic map has no -1.
  const auto shrunk = round_trip({-1, 0.5f}, code_map("dynamic", true));
  CHECK(shrunk[0] == -0.99296875f);
}

TEST_CASE("quantize: with a floor a positive number keeps its sign where the quotient underflows") {
  const CodeMap& map = code_map("dynamic", false, true);
  const Quantized q = quantize_blockwise(vector({1e20f, 1e-38f, 0}), map);  // 1e-58 is no float
  CHECK(q.codes.to_vector<uint8_t>() == std::vector<uint8_t>{255, 1, 0});
}

TEST_CASE("quantize: f64, half precision and strided tensors are read as they are") {
  const CodeMap& map = code_map("dynamic", true);
  const Tensor x = Tensor::from({1.0f, 2.0f, 3.0f, -4.0f, 5.0f, 6.0f}, {2, 3});
  const Quantized expected = quantize_blockwise(x, map);
  for (const DType dtype : {DType::f64, DType::f16, DType::bf16}) {
    const Quantized q = quantize_blockwise(convert(x, dtype), map);
    CHECK(q.codes.to_vector<uint8_t>() == expected.codes.to_vector<uint8_t>());
  }
  const Quantized transposed = quantize_blockwise(x.view({3, 2}, {1, 3}), map);
  const auto e = expected.codes.to_vector<uint8_t>();
  CHECK(transposed.codes.to_vector<uint8_t>() ==
        std::vector<uint8_t>{e[0], e[3], e[1], e[4], e[2], e[5]});
}

TEST_CASE("quantize: the number of threads changes no bit") {
  const CodeMap& map = code_map("dynamic", true);
  const Tensor x = vector(noise(200003, 9));
  const int threads = thread_count();
  set_thread_count(1);
  const Quantized one = quantize_blockwise(x, map);
  set_thread_count(3);
  const Quantized three = quantize_blockwise(x, map);
  set_thread_count(threads);
  CHECK(one.codes.to_vector<uint8_t>() == three.codes.to_vector<uint8_t>());
  CHECK(one.absmax.to_vector<float>() == three.absmax.to_vector<float>());
}

TEST_CASE("quantize: what does not fit is refused") {
  const CodeMap& map = code_map("dynamic", true);
  for (const int64_t block : {0, 32, 100, 8192})
    CHECK(
        error_of([&] { quantize_blockwise(Tensor::zeros({8}), map, block); }) ==
        fmt::format("quantize_blockwise: block_size is {}, must be a power of two from 64 to 4096",
                    block));
  CHECK(error_of([&] { quantize_blockwise(Tensor::zeros({8}, DType::i64), map); }) ==
        "quantize_blockwise: needs f32, f64, f16 or bf16, got i64");
  Quantized q = quantize_blockwise(Tensor::zeros({1000}), map);
  q.block = 64;
  CHECK(
      error_of([&] { dequantize_blockwise(q, map); }) ==
      "dequantize_blockwise: absmax has shape [4], must have [16] for 1000 codes in blocks of 64");
  q.codes = Tensor::zeros({1000});
  CHECK(error_of([&] { dequantize_blockwise(q, map); }) ==
        "dequantize_blockwise: codes are f32 and absmax is f32, must be u8 and f32");
}

// Codes and scales bit for bit, decoded numbers within an ulp. "exact" is bitsandbytes' own
// quantiser; "even" follows the rules of its CUDA kernel: ties to the even code, as in our default,
// and code 0 for NaN. Codes of a block of zeros mean nothing: there the decoded numbers decide.
TEST_CASE("quantize: every reference of bitsandbytes, code for code") {
  const std::string folder = MINIM_TEST_DATA "/optimizers/";
  const auto table = nlohmann::json::parse(std::ifstream(folder + "quantize.json"));
  const Checkpoint data = read_safetensors(folder + "quantize.safetensors");
  int64_t compared = 0;
  for (const auto& test : table["cases"])
    for (const auto& [kind, variants] : test["maps"].items())
      for (const std::string variant : variants) {
        const std::string name = test["name"];
        CAPTURE(name);
        const auto& which = kind;
        CAPTURE(which);
        CAPTURE(variant);
        const CodeMap& library = code_map("bitsandbytes", kind == "signed");
        const CodeMap even(library.values(), {.nan = 0});
        const CodeMap& map = variant == "exact" ? library : even;
        const std::string prefix = fmt::format("{}/{}/{}/", name, kind, variant);
        const Quantized q = quantize_blockwise(data.tensor(name + "/x"), map);
        const auto codes = q.codes.to_vector<uint8_t>();
        const auto absmax = q.absmax.to_vector<float>();
        const auto back = dequantize_blockwise(q, map).to_vector<float>();
        const auto its_codes = data.tensor(prefix + "codes").to_vector<uint8_t>();
        const auto its_absmax = data.tensor(prefix + "absmax").to_vector<float>();
        const auto its_back = data.tensor(prefix + "back").to_vector<float>();
        REQUIRE(codes.size() == its_codes.size());
        REQUIRE(absmax.size() == its_absmax.size());
        for (size_t b = 0; b < absmax.size(); ++b)
          CHECK((std::isnan(its_absmax[b]) ? std::isnan(absmax[b])
                                           : std::bit_cast<uint32_t>(absmax[b]) ==
                                                 std::bit_cast<uint32_t>(its_absmax[b])));
        for (size_t i = 0; i < codes.size(); ++i) {
          if (its_absmax[i / 256] != 0) CHECK(codes[i] == its_codes[i]);
          CHECK(within_an_ulp(back[i], its_back[i]));
        }
        compared += int64_t(codes.size());
      }
  MESSAGE(compared << " codes compared");
}
