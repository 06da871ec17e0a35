#include "core/recording.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/backend.h"
#include "core/cuda/graph.h"
#include "core/tensor_impl.h"

namespace minim {

namespace {

constexpr size_t alignment = 16;

thread_local Recording* in_use = nullptr;

}  // namespace

Recording::Recording(Device device, int64_t bytes) {
  const memory::Scope scope(memory::Category::data);
  there_ = Tensor::empty({bytes}, DType::u8, device);
}

Recording::Use::Use(Recording& recording) {
  check(in_use == nullptr, "recording: another one is in use by this thread");
  in_use = &recording;
}

Recording::Use::~Use() {
  in_use = nullptr;
}

Recording* Recording::current() {
  return in_use;
}

bool Recording::is_recording() {
  return in_use != nullptr && !in_use->replays_;
}

void* Recording::argument(const void* value, size_t bytes) {
  const size_t place = place_;
  place_ = (place + bytes + alignment - 1) / alignment * alignment;
  if (replays_) {
    check(place_ <= here_.size(), "recording: a run has other arguments than were recorded");
  } else {
    check(place_ <= size_t(there_.bytes()), "recording: arguments of {} bytes do not fit into {}",
          place_, there_.bytes());
    here_.resize(place_);
  }
  std::memcpy(here_.data() + place, value, bytes);
  return static_cast<std::byte*>(there_.raw()) + place;
}

void Recording::same(uint64_t value) {
  uint64_t recorded = value;
  if (replays_ && place_ + sizeof(value) <= here_.size())
    std::memcpy(&recorded, here_.data() + place_, sizeof(value));
  check(recorded == value, "recording: a run shares numbers between other tensors than it did");
  argument(&value, sizeof(value));
}

Tensor Recording::input(const Tensor& values) {
  const Device device = there_.device();
  const auto bytes = size_t(values.bytes());
  const void* from = argument(values.raw(), bytes);
  const memory::Scope scope(memory::Category::data);
  if (!replays_) {
    inputs_.push_back(Tensor::empty(values.shape(), values.dtype(), device));
    cuda::copy_within(device, inputs_.back().raw(), from, bytes);
  }
  const Tensor& input = inputs_.at(next_input_++);
  check(input.shape() == values.shape() && input.dtype() == values.dtype(),
        "recording: an input is {} {}, was {} {} when it was recorded", name_of(values.dtype()),
        values.shape(), name_of(input.dtype()), input.shape());
  // Operations that count or check indices do so without asking the device.
  input.impl()->storage->keep_on_host(values.clone());
  return input;
}

void Recording::replay() {
  replays_ = true;
  place_ = next_input_ = 0;
}

DropoutMask Recording::draw(float p, Generator& generator, const Blocks& blocks) {
  const uint64_t offset = generator.take(blocks(rows_));
  DropoutMask mask(p, generator.seed, offset);
  const auto same = std::ranges::find(draws_, offset, &Draw::offset);
  if (same != draws_.end()) {
    mask.start =
        reinterpret_cast<const uint64_t*>(static_cast<std::byte*>(there_.raw()) + same->place);
    return mask;
  }
  const size_t place = place_;
  const std::array<uint64_t, 2> start = {generator.seed, offset};
  mask.start = static_cast<const uint64_t*>(argument(start.data(), sizeof(start)));
  draws_.push_back({place, offset, blocks});
  return mask;
}

void Recording::draw_again(Generator& generator) {
  for (const Draw& draw : draws_) {
    const std::array<uint64_t, 2> start = {generator.seed, generator.take(draw.blocks(rows_))};
    std::memcpy(here_.data() + draw.place, start.data(), sizeof(start));
  }
}

void Recording::upload() const {
  const Device device = there_.device();
  backend(device).copy_in(device, there_.raw(), here_.data(), here_.size());
}

DropoutMask draw_mask(float p, Generator& generator, const Recording::Blocks& blocks) {
  if (Recording::is_recording()) return Recording::current()->draw(p, generator, blocks);
  return {p, generator.seed, generator.take(blocks({}))};
}

}  // namespace minim
