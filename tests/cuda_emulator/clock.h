#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

// What happens before what on streams.
namespace minim::emulator {

// One piece of work: the index-th of its lane. A stream is a lane, and so is each branch of a
// graph. Lane 0 is the legacy stream; index 0 comes before everything.
struct Ticket {
  uint32_t lane = 0;
  uint64_t index = 0;
};

// Of each lane, up to which piece of work something comes after (Mattern's vector clock, 1988).
class Clock {
 public:
  bool covers(const Ticket& t) const { return t.index == 0 || t.index <= at(t.lane); }
  uint64_t at(uint32_t lane) const { return lane < seen_.size() ? seen_[lane] : 0; }
  void add(const Ticket& t) {
    if (t.lane >= seen_.size()) seen_.resize(t.lane + 1);
    seen_[t.lane] = std::max(seen_[t.lane], t.index);
  }
  void merge(const Clock& other) {
    for (uint32_t lane = 0; lane < other.seen_.size(); ++lane)
      add({lane, other.seen_[lane]});
  }
  uint32_t lanes() const { return uint32_t(seen_.size()); }

 private:
  std::vector<uint64_t> seen_;
};

}  // namespace minim::emulator
