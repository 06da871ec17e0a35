#include "tests/cuda_emulator/races.h"

#include <algorithm>

#include <fmt/format.h>

namespace minim::emulator::checker {

State s;

namespace {

const char anchor = 0;

// Where in the grid a record's thread was.
std::string describe_thread(uint32_t thread) {
  thread &= ~atomic_flag;
  if (thread == copy_thread || s.threads == 0) return "a copy, memset or library";
  return fmt::format("block {} thread {}", thread / s.threads, thread % s.threads);
}

const Work& work_of(uint32_t seq) {
  const auto it = std::upper_bound(s.history.begin(), s.history.end(), seq,
                                   [](uint32_t q, const Work& w) { return q < w.first_seq; });
  return *std::prev(it);
}

}  // namespace

int32_t code_of(const void* address) {
  return int32_t(intptr_t(address) - intptr_t(&anchor));
}

bool is_ordered(const Record& r, const Region& region, uint32_t me) {
  if (r.seq < region.floor)
    return !region.shadow->concurrent || s.after->covers(work_of(r.seq).ticket);
  const uint32_t other = r.thread & ~atomic_flag;
  if (other == me) return true;
  const uint32_t o = other - s.first_thread, m = me - s.first_thread;
  if (o >= s.threads) return false;
  if (r.seq < s.barrier_seq) return true;
  return o / 32 == m / 32 && r.seq < s.warp_seq[size_t(m) * 32 + o % 32];
}

std::string place_in(const Region& r, size_t offset) {
  return r.allocation != nullptr
             ? fmt::format("byte {} of {}", offset, r.allocation->describe())
             : fmt::format("byte {} of a shared variable of {} bytes", offset, r.bytes);
}

Problem describe_race(const Record& earlier, const Access& now, const Region& r, size_t offset,
                      bool earlier_writes, std::string& text, std::vector<Place>& places) {
  const uint32_t me = now.me & ~atomic_flag, other = earlier.thread & ~atomic_flag;
  Problem problem = Problem::race;
  const char* missing = "no barrier lies between";
  if (earlier.seq < r.floor) {
    problem = Problem::stream_race;
    missing = "its stream does not wait for the other's";
  } else if (other - s.first_thread >= s.threads) {
    problem = Problem::block_race;
    missing = "blocks of a launch are not ordered";
  }
  text = fmt::format(
      "{} {} by {}, {} before by {}: {}", place_in(r, offset), now.write ? "is written" : "is read",
      describe_thread(me), earlier_writes ? "written" : "read",
      problem == Problem::stream_race && other != copy_thread ? "another launch"
                                                              : describe_thread(other),
      missing);
  const auto address_of = [](int32_t code) -> const void* { return &anchor + code; };
  if (now.code != 0) places.push_back({"now:   ", address_of(now.code)});
  if (earlier.code != 0) places.push_back({"before:", address_of(earlier.code)});
  return problem;
}

}  // namespace minim::emulator::checker
