#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/text/sha256.h"
#include "text/sampler.h"

using namespace minim;
using namespace minim::text;
using Json = nlohmann::json;

namespace {

Json reference() {
  return Json::parse(std::ifstream(MINIM_TEST_DATA "/random/random.json"));
}

bool is_permutation_of_rows(std::vector<int64_t> order, int64_t n) {
  std::sort(order.begin(), order.end());
  for (int64_t i = 0; i < int64_t(order.size()); ++i) {
    if (order[size_t(i)] != i) return false;
  }
  return int64_t(order.size()) == n;
}

}  // namespace

TEST_CASE("sha256 gives the published digest of \"abc\"") {
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("randperm gives torch's order for every reference size and seed") {
  const Json cases = reference()["randperm"];
  REQUIRE(cases.size() > 3);
  for (const Json& c : cases) {
    CAPTURE(c["n"].get<int64_t>());
    CAPTURE(c["seed"].get<uint64_t>());
    const std::vector<int64_t> order = randperm(c["n"], c["seed"]);
    CHECK(sha256(fmt::format("{}", fmt::join(order, ","))) == c["sha256_of_comma_joined"]);
    if (c.contains("order")) CHECK(Json(order) == c["order"]);
  }
}

TEST_CASE("each epoch has the order in which transformers' Trainer feeds rows") {
  const Json cases = reference()["trainer"];
  REQUIRE(cases.size() > 3);
  for (const Json& c : cases) {
    const Json& arguments = c["arguments"];
    const uint64_t seed = arguments.value("data_seed", arguments.value("seed", uint64_t(42)));
    const Sampler sampler(c["rows"], {.batch_size = c["batch"], .seed = seed});
    for (int64_t epoch = 0; epoch < c["epochs"]; ++epoch) {
      const std::vector<int64_t> order = sampler.order(epoch);
      CHECK(order == randperm(c["rows"], seed + uint64_t(epoch)));
      if (c.contains("order")) CHECK(Json(order) == c["order"][size_t(epoch)]);
    }
  }
}

TEST_CASE("every row comes once per epoch, in batches of which only the last may be smaller") {
  using enum SamplingStrategy;
  for (const SamplingStrategy strategy : {random, sequential, group_by_length}) {
    for (const int64_t rows : {0, 1, 7, 8, 9, 100, 4001}) {
      const Sampler sampler(rows, {.batch_size = 8, .strategy = strategy},
                            std::vector<int64_t>(size_t(rows), 5));
      const auto batches = sampler.batches(3);
      CHECK(int64_t(batches.size()) == sampler.batches_per_epoch());
      std::vector<int64_t> joined;
      for (size_t i = 0; i < batches.size(); ++i) {
        CHECK((batches[i].size() == 8 || (i + 1 == batches.size() && !batches[i].empty())));
        joined.insert(joined.end(), batches[i].begin(), batches[i].end());
      }
      CHECK(is_permutation_of_rows(joined, rows));
      CHECK(joined == sampler.order(3));
      if (strategy == sequential) CHECK(std::is_sorted(joined.begin(), joined.end()));
    }
  }
}

TEST_CASE("a last batch that is not full is left out on request") {
  for (const int64_t rows : {7, 8, 9, 11}) {
    const Sampler all(rows, {.batch_size = 4}), full(rows, {.batch_size = 4, .drop_last = true});
    auto batches = all.batches(3);
    if (rows % 4 != 0) batches.pop_back();
    CHECK(full.batches(3) == batches);
    CHECK(full.batches_per_epoch() == rows / 4);
  }
}

TEST_CASE("epochs and seeds differ in order, the same epoch never does") {
  const Sampler one(1000, {.seed = 1}), two(1000, {.seed = 2});
  CHECK(one.order(0) == one.order(0));
  CHECK(one.order(0) != one.order(1));
  CHECK(one.order(1) == two.order(0));  // both are seeded with 2
}

// By hand from the rule. randperm(10, 42) is 2 6 1 8 4 5 0 9 3 7. With batches of 1, a megabatch
// has min(10 / 4, 50) = 2 rows: [2 6] [1 8] [4 5] [0 9] [3 7]. The longest row is 9 with 9 tokens,
// first of the fourth megabatch once sorted; it changes places with the very first.
TEST_CASE("grouping by length sorts megabatches and puts the longest row first") {
  const std::vector<int64_t> lengths = {3, 5, 4, 1, 7, 7, 6, 2, 8, 9};
  CHECK(length_grouped_order(lengths, 1, 42) == std::vector<int64_t>{9, 2, 8, 1, 4, 5, 6, 0, 7, 3});
}

TEST_CASE("grouping by length leaves little to pad") {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 4000; ++i)
    lengths.push_back(1 + i * i % 97);
  const auto padded = [&](SamplingStrategy strategy) {
    int64_t tokens = 0;
    for (const auto& batch : Sampler(4000, {.strategy = strategy}, lengths).batches(0)) {
      int64_t longest = 0;
      for (int64_t row : batch)
        longest = std::max(longest, lengths[size_t(row)]);
      tokens += longest * int64_t(batch.size());
    }
    return tokens;
  };
  int64_t total = 0;
  for (int64_t length : lengths)
    total += length;
  // A megabatch of 400 rows spreads 97 lengths over 50 batches: about two lengths per batch.
  CHECK(double(padded(SamplingStrategy::group_by_length)) < 1.05 * double(total));
  CHECK(double(padded(SamplingStrategy::random)) > 1.5 * double(total));
}

// Rows that torch 2.15 gives: list(WeightedRandomSampler(weights, n, generator=g)) with
// g = torch.Generator().manual_seed(seed).
TEST_CASE("a weighted order is that of torch's WeightedRandomSampler") {
  using Rows = std::vector<int64_t>;
  const std::vector<double> weights = {1.0, 3.0, 0.5, 2.0};
  CHECK(weighted_order(weights, 12, 42) == Rows{0, 0, 0, 0, 1, 1, 3, 3, 0, 0, 1, 1});
  CHECK(weighted_order(weights, 12, 43) == Rows{2, 1, 1, 3, 3, 1, 0, 1, 1, 3, 3, 1});
  const Sampler sampler(4, {.strategy = SamplingStrategy::weighted}, {}, weights);
  CHECK(sampler.order(1) == Rows{2, 1, 1, 3});  // of seed 42 + 1
}

TEST_CASE("rows come as often as their weights say, and never with weight 0") {
  const int64_t n = 40000;
  std::vector<double> counts(4);
  for (const int64_t row : weighted_order({0, 1, 3, 0}, n, 7))
    ++counts[size_t(row)];
  CHECK(counts[0] + counts[3] == 0);
  // Five standard deviations of a binomial with p = 1/4: 5 * sqrt(n * 3 / 16) = 433.
  CHECK(std::abs(counts[1] - n / 4) < 433);
}

TEST_CASE("names of sampling strategies are read and written") {
  for (const char* name : {"random", "sequential", "group_by_length", "weighted"})
    CHECK(name_of(parse_sampling_strategy(name)) == name);
  CHECK_THROWS_WITH_AS(parse_sampling_strategy("uniform"),
                       "train_sampling_strategy: there is no \"uniform\"; there are random, "
                       "sequential, group_by_length and weighted",
                       Error);
}

TEST_CASE("a sampler refuses what has no order") {
  CHECK_THROWS_WITH_AS(Sampler(3, {.strategy = SamplingStrategy::weighted}, {}, {1, 2}),
                       "sampler: 2 weights for 3 rows, weighted needs one for each", Error);
  CHECK_THROWS_WITH_AS(weighted_order({1, -1}, 2, 0),
                       "weighted_order: weight -1 of row 1, must be finite and not negative",
                       Error);
  CHECK_THROWS_WITH_AS(weighted_order({0, 0}, 2, 0),
                       "weighted_order: the weights sum to 0, must be above 0", Error);
  CHECK_THROWS_WITH_AS(Sampler(3, {.batch_size = 0}), "sampler: batch size 0, must be positive",
                       Error);
  CHECK_THROWS_WITH_AS(Sampler(3, {.strategy = SamplingStrategy::group_by_length}, {1, 2}),
                       "sampler: 2 lengths for 3 rows, group_by_length needs one for each", Error);
  CHECK_THROWS_WITH_AS(randperm(214748364, 0), "randperm: 214748364 rows, must be 0 to 214748363",
                       Error);
}
