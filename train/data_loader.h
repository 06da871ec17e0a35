#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "text/packing.h"
#include "text/sampler.h"

namespace minim::train {

// Rows among these whose label counts: all but those of class -100.
int64_t counted_rows(const text::Examples& set, const std::vector<int64_t>& rows);

// These rows as a batch on a device, counted as data.
PackedBatch load_batch(const text::Examples& set, std::span<const int64_t> rows, Device device);

// The order in which rows come. Under SamplingStrategy::weighted all classes come equally often.
text::Sampler make_sampler(const text::Examples& set, const text::Sampler::Options& options);

// A data set in batches, as PyTorch's DataLoader: each `for` over it is the next epoch, in the
// order that text::Sampler gives that. Copies share data and position.
//
//   for (const PackedBatch& batch : train_loader) ...
class DataLoader {
 public:
  explicit DataLoader(text::Examples set, const text::Sampler::Options& options = {});

  // Where the batches to come are put; at first the CPU.
  void to(Device device) const;
  // Batches of an epoch.
  int64_t size() const;
  const text::Examples& dataset() const;

  // The next epoch; at first 0, and after seek() what is left of that one.
  class Iterator;
  Iterator begin();
  std::nullptr_t end() const { return nullptr; }

  // Where it is: the epoch, and the number of the batch that comes next in it.
  int64_t epoch() const;
  int64_t next_batch() const;
  // Makes the next `for` begin there. Throws unless the epoch has such a batch.
  void seek(int64_t epoch, int64_t batch);
  // Whether a `for` over it is under way; rows of its batch `i`, while it is.
  bool is_active() const;
  const std::vector<int64_t>& rows(int64_t i) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// What a range-based for needs.
class DataLoader::Iterator {
 public:
  explicit Iterator(DataLoader loader);
  const PackedBatch& operator*() const { return batch_; }
  Iterator& operator++();
  bool operator!=(std::nullptr_t) const { return !is_done_; }

 private:
  void load();
  DataLoader loader_;
  PackedBatch batch_ = {};
  bool is_done_ = false;
};

}  // namespace minim::train
