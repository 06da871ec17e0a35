#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace minim::text {

// The order of torch.randperm(n, generator=torch.Generator().manual_seed(seed)) on a CPU: a forward
// Fisher-Yates shuffle over MT19937, seeded with the low 32 bits. n must be below 2^32 / 20.
std::vector<int64_t> randperm(int64_t n, uint64_t seed);

// A random order in which neighbours have similar lengths, as transformers'
// get_length_grouped_indices gives it: a permutation is cut into megabatches of up to 50 batches,
// each is sorted by descending length, and the longest of all rows comes first, so that too little
// memory shows at once.
std::vector<int64_t> length_grouped_order(const std::vector<int64_t>& lengths, int64_t batch_size,
                                          uint64_t seed);

// `n` rows drawn with replacement, each as often as its weight says: those of
// torch.utils.data.WeightedRandomSampler(weights, n, generator=...) with that seed on a CPU. Throws
// for a weight that is negative or not finite, and where none is above 0.
std::vector<int64_t> weighted_order(const std::vector<double>& weights, int64_t n, uint64_t seed);

// How the rows of an epoch are ordered (train_sampling_strategy). Weighted: as many as there are,
// drawn with replacement.
enum class SamplingStrategy : uint8_t { random, sequential, group_by_length, weighted };

// "random", "sequential", "group_by_length" or "weighted".
std::string_view name_of(SamplingStrategy strategy);
// Throws for a name that is none.
SamplingStrategy parse_sampling_strategy(std::string_view name);

// Gives the rows of each batch of each epoch; a pure function of its options and the epoch, so that
// a resumed run sees the order that it would have seen.
class Sampler {
 public:
  struct Options {
    int64_t batch_size = 8;
    SamplingStrategy strategy = SamplingStrategy::random;
    uint64_t seed = 42;  // epoch e is shuffled with seed + e
    // group_by_length: batches of one update, which are grouped together.
    int64_t gradient_accumulation_steps = 1;
    bool drop_last = false;  // leave out a last batch that is not full
  };

  // `lengths` are those of the rows, in tokens, and `weights` how often they come; needed by
  // group_by_length and by weighted alone.
  Sampler(int64_t rows, const Options& options, std::vector<int64_t> lengths = {},
          std::vector<double> weights = {});

  // Row numbers in the order of an epoch, counted from 0.
  std::vector<int64_t> order(int64_t epoch) const;
  // The same in batches; the last holds what is left, if that is not dropped.
  std::vector<std::vector<int64_t>> batches(int64_t epoch) const;
  int64_t batches_per_epoch() const {
    const int64_t full = rows_ / options_.batch_size;
    return full + int64_t(!options_.drop_last && rows_ % options_.batch_size > 0);
  }

 private:
  int64_t rows_;
  Options options_;
  std::vector<int64_t> lengths_;
  std::vector<double> weights_;
};

}  // namespace minim::text
