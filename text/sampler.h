#pragma once

#include <cstdint>
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

// How the rows of an epoch are ordered (train_sampling_strategy).
enum class SamplingStrategy : uint8_t { random, sequential, group_by_length };

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
  };

  // `lengths` are those of the rows, in tokens; needed by group_by_length alone.
  Sampler(int64_t rows, const Options& options, std::vector<int64_t> lengths = {});

  // Row numbers in the order of an epoch, counted from 0.
  std::vector<int64_t> order(int64_t epoch) const;
  // The same in batches; the last holds what is left.
  std::vector<std::vector<int64_t>> batches(int64_t epoch) const;
  int64_t batches_per_epoch() const {
    return (rows_ + options_.batch_size - 1) / options_.batch_size;
  }

 private:
  int64_t rows_;
  Options options_;
  std::vector<int64_t> lengths_;
};

}  // namespace minim::text
