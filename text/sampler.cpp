#include "text/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

#include "core/error.h"
#include "core/printable.h"

namespace minim::text {
namespace {

constexpr std::array<std::string_view, 4> names = {"random", "sequential", "group_by_length",
                                                   "weighted"};

std::vector<int64_t> in_sequence(int64_t n) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t(0));
  return order;
}

}  // namespace

std::vector<int64_t> randperm(int64_t n, uint64_t seed) {
  // Above this bound torch draws 64 bits at a time, and takes another algorithm.
  constexpr int64_t bound = 0xFFFFFFFF / 20;
  check(n >= 0 && n < bound, "randperm: {} rows, must be 0 to {}", n, bound - 1);
  std::mt19937 generator(static_cast<uint32_t>(seed));
  std::vector<int64_t> order = in_sequence(n);
  for (int64_t i = 0; i + 1 < n; ++i) {
    const int64_t other = i + int64_t(generator()) % (n - i);
    std::swap(order[size_t(i)], order[size_t(other)]);
  }
  return order;
}

std::vector<int64_t> length_grouped_order(const std::vector<int64_t>& lengths, int64_t batch_size,
                                          uint64_t seed) {
  const int64_t n = int64_t(lengths.size());
  check(batch_size > 0, "length_grouped_order: batch size {}, must be positive", batch_size);
  const int64_t batches = std::clamp<int64_t>(n / (4 * batch_size), 1, 50);
  const int64_t megabatch = batches * batch_size;
  std::vector<int64_t> order = randperm(n, seed);
  const auto length = [&](int64_t row) { return lengths[size_t(row)]; };
  int64_t longest = 0;
  for (int64_t begin = 0; begin < n; begin += megabatch) {
    const int64_t end = std::min(begin + megabatch, n);
    std::stable_sort(order.begin() + begin, order.begin() + end,
                     [&](int64_t a, int64_t b) { return length(a) > length(b); });
    if (length(order[size_t(begin)]) > length(order[size_t(longest)])) longest = begin;
  }
  if (n > 0) std::swap(order[0], order[size_t(longest)]);
  return order;
}

std::vector<int64_t> weighted_order(const std::vector<double>& weights, int64_t n, uint64_t seed) {
  check(n >= 0, "weighted_order: {} rows, must not be negative", n);
  std::vector<double> upper;  // share of the rows up to each
  double total = 0;
  for (size_t row = 0; row < weights.size(); ++row) {
    check(weights[row] >= 0 && std::isfinite(weights[row]),
          "weighted_order: weight {} of row {}, must be finite and not negative", weights[row],
          row);
    upper.push_back(total += weights[row]);
  }
  check(total > 0 && std::isfinite(total), "weighted_order: the weights sum to {}, must be above 0",
        total);
  for (double& bound : upper)
    bound /= total;
  std::mt19937 generator(static_cast<uint32_t>(seed));
  std::vector<int64_t> order(static_cast<size_t>(n));
  for (int64_t& row : order) {
    const uint64_t high = generator(), low = generator();
    const double uniform = double((high << 32 | low) & ((uint64_t(1) << 53) - 1)) * 0x1p-53;
    row = std::ranges::lower_bound(upper, uniform) - upper.begin();
    // Exactly 0 is below no bound, but a row without weight has none of the interval.
    while (weights[size_t(row)] == 0)
      ++row;
  }
  return order;
}

std::string_view name_of(SamplingStrategy strategy) {
  return names[size_t(strategy)];
}

SamplingStrategy parse_sampling_strategy(std::string_view name) {
  const auto found = std::ranges::find(names, name);
  check(found != names.end(),
        "train_sampling_strategy: there is no {}; there are {}, {}, {} and {}", printable(name),
        names[0], names[1], names[2], names[3]);
  return SamplingStrategy(found - names.begin());
}

Sampler::Sampler(int64_t rows, const Options& options, std::vector<int64_t> lengths,
                 std::vector<double> weights)
    : rows_(rows), options_(options), lengths_(std::move(lengths)), weights_(std::move(weights)) {
  check(rows >= 0, "sampler: {} rows, must not be negative", rows);
  check(options.batch_size > 0, "sampler: batch size {}, must be positive", options.batch_size);
  check(options.gradient_accumulation_steps > 0,
        "sampler: {} gradient accumulation steps, must be positive",
        options.gradient_accumulation_steps);
  check(options.strategy != SamplingStrategy::group_by_length || int64_t(lengths_.size()) == rows,
        "sampler: {} lengths for {} rows, group_by_length needs one for each", lengths_.size(),
        rows);
  check(options.strategy != SamplingStrategy::weighted || int64_t(weights_.size()) == rows,
        "sampler: {} weights for {} rows, weighted needs one for each", weights_.size(), rows);
}

std::vector<int64_t> Sampler::order(int64_t epoch) const {
  const uint64_t seed = options_.seed + uint64_t(epoch);
  switch (options_.strategy) {
    case SamplingStrategy::random:
      return randperm(rows_, seed);
    case SamplingStrategy::group_by_length:
      return length_grouped_order(lengths_,
                                  options_.batch_size * options_.gradient_accumulation_steps, seed);
    case SamplingStrategy::weighted:
      return weighted_order(weights_, rows_, seed);
    default:
      return in_sequence(rows_);
  }
}

std::vector<std::vector<int64_t>> Sampler::batches(int64_t epoch) const {
  const std::vector<int64_t> rows = order(epoch);
  std::vector<std::vector<int64_t>> batches;
  for (int64_t i = 0; i < batches_per_epoch(); ++i) {
    const int64_t begin = i * options_.batch_size;
    const int64_t end = std::min(begin + options_.batch_size, rows_);
    batches.emplace_back(rows.begin() + begin, rows.begin() + end);
  }
  return batches;
}

}  // namespace minim::text
