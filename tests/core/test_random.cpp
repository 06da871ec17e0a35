#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/random.h"

namespace minim {
namespace {

using Json = nlohmann::json;

Json references() {
  std::ifstream in(MINIM_TEST_DATA "/random/random.json");
  return Json::parse(in);
}

uint64_t word_at(const Json& words, size_t i) {
  return std::stoull(words[i].get<std::string>(), nullptr, 16);
}

std::string hex(const PhiloxBlock& block) {
  return fmt::format("{:08x} {:08x} {:08x} {:08x}", block.words[0], block.words[1], block.words[2],
                     block.words[3]);
}

TEST_CASE("Philox gives the published answers") {
  const Json table = references()["philox_4x32_10"];
  CHECK(table.size() > 3);
  for (const Json& row : table) {
    const Json &c = row["counter"], &k = row["key"];
    const uint64_t counter = word_at(c, 1) << 32 | word_at(c, 0);
    const uint64_t stream = word_at(c, 3) << 32 | word_at(c, 2);
    const uint64_t seed = word_at(k, 1) << 32 | word_at(k, 0);
    CHECK(hex(philox(seed, counter, stream)) == row["output"].get<std::string>());
  }
}

TEST_CASE("uniform01 covers [0, 1) in steps of 2^-24") {
  CHECK(uniform01(0) == 0.0f);
  CHECK(uniform01(0xff) == 0.0f);
  CHECK(uniform01(0x100) == 0x1p-24f);
  CHECK(uniform01(0xffffffff) == 1.0f - 0x1p-24f);
}

TEST_CASE("a generator hands out blocks that do not overlap") {
  Generator generator{.seed = 5, .offset = 3};
  CHECK(generator.take(10) == 3);
  CHECK(generator.take(1) == 13);
  CHECK(generator.offset == 14);
}

struct Moments {
  double mean = 0, variance = 0, skew = 0, kurtosis = 0;
};

Moments moments(const std::vector<double>& x) {
  Moments m;
  const double n = double(x.size());
  for (double v : x)
    m.mean += v / n;
  for (double v : x) {
    const double d = v - m.mean;
    m.variance += d * d / n;
    m.skew += d * d * d / n;
    m.kurtosis += d * d * d * d / n;
  }
  m.skew /= std::pow(m.variance, 1.5);
  m.kurtosis /= m.variance * m.variance;
  return m;
}

TEST_CASE("fill_normal has the moments of a normal distribution") {
  constexpr int64_t n = 1000000;
  const Tensor x = Tensor::empty({n});
  fill_normal(x, 3, 0.5, 42, "weight");
  const Moments m = moments(x.to_vector<double>());
  // Five standard deviations of each estimate.
  CHECK(std::abs(m.mean - 3) < 5 * 0.5 / std::sqrt(double(n)));
  CHECK(std::abs(m.variance / 0.25 - 1) < 5 * std::sqrt(2.0 / n));
  CHECK(std::abs(m.skew) < 5 * std::sqrt(6.0 / n));
  CHECK(std::abs(m.kurtosis - 3) < 5 * std::sqrt(24.0 / n));
}

TEST_CASE("fill_uniform stays in its interval and fills it evenly") {
  constexpr int64_t n = 1000000;
  const Tensor x = Tensor::empty({n});
  fill_uniform(x, -2, 6, 42, "weight");
  std::array<int, 8> counts{};
  for (float v : x.values<float>()) {
    REQUIRE(v >= -2.0f);
    REQUIRE(v < 6.0f);
    ++counts[size_t(std::floor(v + 2))];
  }
  // Each count is binomial(n, 1/8).
  for (int count : counts)
    CHECK(std::abs(count - n / 8) < 5 * std::sqrt(n * 7.0 / 64));
}

TEST_CASE("values depend on seed and name alone") {
  const auto draw = [](int64_t n, uint64_t seed, std::string_view name, DType dtype = DType::f32) {
    const Tensor x = Tensor::empty({n}, dtype);
    fill_normal(x, 0, 1, seed, name);
    return x.to_vector<double>();
  };
  const auto first = draw(100, 1, "a.weight");
  CHECK(draw(5, 9, "something else").size() == 5);
  CHECK(draw(100, 1, "a.weight") == first);
  CHECK(draw(100, 1, "a.weight", DType::f64) == first);
  auto longer = draw(200, 1, "a.weight");
  longer.resize(100);
  CHECK(longer == first);
  CHECK(draw(100, 2, "a.weight") != first);
  CHECK(draw(100, 1, "b.weight") != first);
  CHECK(randn({50}, 3).to_vector<float>() == randn({5, 10}, 3).to_vector<float>());
  CHECK(rand({50}, 3).to_vector<float>() != rand({50}, 4).to_vector<float>());
}

TEST_CASE("two names share no stretch of random numbers") {
  const Tensor a = Tensor::empty({1000}), b = Tensor::empty({1000});
  fill_normal(a, 0, 1, 1, "layer.0");
  fill_normal(b, 0, 1, 1, "layer.1");
  double product = 0;
  for (int i = 0; i < 1000; ++i)
    product += double(a.data<float>()[i]) * double(b.data<float>()[i]);
  CHECK(std::abs(product) < 5 * std::sqrt(1000.0));
}

TEST_CASE("filling is an in-place write and needs a floating dtype") {
  const Tensor x = Tensor::zeros({3});
  const int64_t before = x.version();
  fill_normal(x, 0, 1, 0, "x");
  fill_uniform(x, 0, 1, 0, "x");
  CHECK(x.version() == before + 2);
  CHECK_THROWS_WITH_AS(fill_normal(Tensor::zeros({2}, DType::i32), 0, 1, 0, "x"),
                       "fill_normal: needs f32, f64, f16 or bf16, got i32", Error);
}

TEST_CASE("dropout keeps with the probability that its scale undoes") {
  constexpr int64_t n = 1 << 20;
  for (float p : {0.1f, 0.2f, 0.5f, 0.9f}) {
    CAPTURE(p);
    const DropoutMask mask(p, 7, 11);
    int64_t kept = 0;
    for (int64_t i = 0; i < n; ++i) {
      const float m = mask(i);
      kept += m != 0;
      if (m != 0) REQUIRE(m == mask.scale());
    }
    const double keep = 1 / double(mask.scale());
    // The realised probability is the next multiple of 2^-16; the scale is one over it, rounded.
    CHECK(std::abs(keep - (1 - double(p))) <= 0.5 / 65536 + 1e-7);
    CHECK(std::abs(double(kept) - keep * n) < 5 * std::sqrt(n * keep * (1 - keep)));
  }
}

TEST_CASE("dropout with p = 0 keeps all and with p = 1 nothing") {
  const DropoutMask none(0, 1, 2), all(1, 1, 2);
  CHECK(none.scale() == 1.0f);
  CHECK(all.scale() == 0.0f);
  for (int64_t i = 0; i < 10000; ++i) {
    REQUIRE(none(i) == 1.0f);
    REQUIRE(all(i) == 0.0f);
  }
}

TEST_CASE("a dropout mask is a function of seed, offset and index") {
  const DropoutMask mask(0.5f, 3, 100), later(0.5f, 3, 101), other(0.5f, 4, 100);
  int same = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    CHECK(mask(i + 8) == later(i));  // one block later is eight elements later
    same += mask(i) == other(i);
  }
  CHECK(std::abs(same - 500) < 5 * std::sqrt(250.0));
  CHECK(DropoutMask::blocks(0) == 0);
  CHECK(DropoutMask::blocks(1) == 1);
  CHECK(DropoutMask::blocks(8) == 1);
  CHECK(DropoutMask::blocks(9) == 2);
}

TEST_CASE("each of the eight elements of a block has bits of its own") {
  for (int64_t i = 0; i < 8; ++i)
    for (int64_t j = 0; j < i; ++j) {
      int same = 0;
      const DropoutMask mask(0.5f, 1, 0);
      for (int64_t block = 0; block < 1000; ++block)
        same += mask(block * 8 + i) == mask(block * 8 + j);
      CAPTURE(i);
      CAPTURE(j);
      CHECK(std::abs(same - 500) < 6 * std::sqrt(250.0));
    }
}

}  // namespace
}  // namespace minim
