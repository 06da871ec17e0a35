#include "train/data_loader.h"

#include <algorithm>

#include "core/error.h"
#include "core/memory.h"
#include "train/class_weights.h"

namespace minim::train {

int64_t counted_rows(const text::Examples& set, const std::vector<int64_t>& rows) {
  if (!set.labels.defined() || is_floating(set.labels.dtype())) return int64_t(rows.size());
  const auto labels = set.labels.values<int64_t>();
  return std::ranges::count_if(rows, [&](int64_t row) { return labels[size_t(row)] != -100; });
}

PackedBatch load_batch(const text::Examples& set, std::span<const int64_t> rows, Device device) {
  const memory::Scope scope(memory::Category::data);
  return text::pack(set, rows).to(device);
}

text::Sampler make_sampler(const text::Examples& set, const text::Sampler::Options& options) {
  const bool weighted = options.strategy == text::SamplingStrategy::weighted;
  return text::Sampler(int64_t(set.sequences.size()), options, set.lengths(),
                       weighted ? balanced_row_weights(set) : std::vector<double>());
}

struct DataLoader::State {
  text::Examples set;
  text::Sampler sampler;
  Device device = {};
  int64_t epoch = 0, next = 0;
  bool is_active = false, was_sought = false;
  std::vector<std::vector<int64_t>> batches = {};  // of the epoch under way
};

DataLoader::DataLoader(text::Examples set, const text::Sampler::Options& options) {
  check(!set.sequences.empty(), "data loader: the data set is empty");
  text::Sampler sampler = make_sampler(set, options);
  state_ = std::make_shared<State>(State{.set = std::move(set), .sampler = std::move(sampler)});
}

void DataLoader::to(Device device) const {
  state_->device = device;
}

int64_t DataLoader::size() const {
  return state_->sampler.batches_per_epoch();
}

const text::Examples& DataLoader::dataset() const {
  return state_->set;
}

int64_t DataLoader::epoch() const {
  return state_->epoch;
}

int64_t DataLoader::next_batch() const {
  return state_->next;
}

bool DataLoader::is_active() const {
  return state_->is_active;
}

const std::vector<int64_t>& DataLoader::rows(int64_t i) const {
  return state_->batches.at(size_t(i));
}

void DataLoader::seek(int64_t epoch, int64_t batch) {
  check(epoch >= 0 && batch >= 0 && batch < size(),
        "data loader: epoch {}, batch {} of {}; there is no such place", epoch, batch, size());
  state_->epoch = epoch;
  state_->next = batch;
  state_->was_sought = true;
  state_->is_active = false;
}

DataLoader::Iterator DataLoader::begin() {
  State& s = *state_;
  // A loop that was left early does not go on.
  if (s.next != 0 && !s.was_sought) {
    ++s.epoch;
    s.next = 0;
  }
  s.was_sought = false;
  s.batches = s.sampler.batches(s.epoch);
  s.is_active = true;
  return Iterator(*this);
}

DataLoader::Iterator::Iterator(DataLoader loader) : loader_(std::move(loader)) {
  load();
}

DataLoader::Iterator& DataLoader::Iterator::operator++() {
  State& s = *loader_.state_;
  if (s.next < loader_.size()) {
    load();
    return *this;
  }
  ++s.epoch;
  s.next = 0;
  s.is_active = false;
  is_done_ = true;
  return *this;
}

// Takes the next batch.
void DataLoader::Iterator::load() {
  State& s = *loader_.state_;
  batch_ = load_batch(s.set, s.batches[size_t(s.next++)], s.device);
}

}  // namespace minim::train
