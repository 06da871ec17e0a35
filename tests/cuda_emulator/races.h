#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/cuda_emulator/checker.h"

// What checker.cpp knows of the work that runs, and which accesses race: apart from it to be read
// by itself.
namespace minim::emulator::checker {

inline constexpr uint32_t atomic_flag = 0x80000000u;
inline constexpr uint32_t copy_thread = 0x7fffffffu;  // of records that copies and memsets leave

// Memory that the running launch used of late.
struct Region {
  uintptr_t begin = 0;
  size_t bytes = 0;
  Shadow* shadow = nullptr;
  uint32_t floor = 0;                // accesses of a lower seq come before
  Allocation* allocation = nullptr;  // nullptr: shared memory
};
inline constexpr size_t regions = 8;

struct Work {
  uint32_t first_seq = 0;
  Ticket ticket;
};

struct State {
  bool off = false;       // for good
  bool checking = false;  // the launch that runs
  bool noticed = false;   // instrumentation in it
  uint32_t seq = 0, work_seq = 0, block_seq = 0, barrier_seq = 0;
  uint32_t first_thread = 0, threads = 0;
  std::vector<uint32_t> warp_seq;  // [thread][lane]: of the last __syncwarp of the two
  Region recent[regions];
  size_t next_region = 0;
  std::vector<Work> history;
  Ticket ticket;
  const Clock* after = nullptr;
  uint64_t works = 0, accesses = 0;
};

extern State s;

struct Access {
  uint32_t me;  // the thread, with the flag of atomics
  int32_t code;
  bool write;
};

// Codes are counted from one place in the program, to fit 32 bits.
int32_t code_of(const void* address);

// "byte 4 of allocation 2 of 400 bytes".
std::string place_in(const Region& r, size_t offset);
// What to say of two accesses that race; the problem by where their threads are.
Problem describe_race(const Record& earlier, const Access& now, const Region& r, size_t offset,
                      bool earlier_writes, std::string& text, std::vector<Place>& places);
// Does the access of a record come before all that thread `me` does now?
bool is_ordered(const Record& r, const Region& region, uint32_t me);

inline bool conflicts(const Record& other, const Access& a, const Region& r) {
  return other.seq != 0 && (other.thread & a.me & atomic_flag) == 0 &&
         !is_ordered(other, r, a.me & ~atomic_flag);
}

// The access before that this one races with; nullptr if none. `write` says which kind it was.
inline const Record* find_race(const Cell& cell, const Access& a, const Region& r, bool& write) {
  write = true;
  if (conflicts(cell.write, a, r)) return &cell.write;
  write = false;
  if (a.write && conflicts(cell.read, a, r)) return &cell.read;
  if (a.write && conflicts(cell.older_read, a, r)) return &cell.older_read;
  return nullptr;
}

inline void leave_record(Cell& cell, const Access& a) {
  if (a.write) {
    cell.write = {s.seq, a.me, a.code};
    return;
  }
  if (((cell.read.thread ^ a.me) & ~atomic_flag) != 0) cell.older_read = cell.read;
  cell.read = {s.seq, a.me, a.code};
}

// Looks at the records of a range and leaves new ones; on_race(record, whether it wrote).
template <class OnRace>
void visit_cells(const Region& r, size_t offset, size_t bytes, const Access& a,
                 const OnRace& on_race) {
  Shadow& shadow = *r.shadow;
  bool write = false;
  if (shadow.concurrent)
    if (const Record* race = find_race(shadow.whole, a, r, write)) return on_race(*race, write);
  const auto grain = unsigned(std::countr_zero(offset | bytes));
  if (grain < shadow.shift()) shadow.refine(grain);
  Cell* cell = shadow.cells() + (offset >> shadow.shift());
  Cell* const end = shadow.cells() + ((offset + bytes - 1) >> shadow.shift()) + 1;
  for (; cell != end; ++cell) {
    if (const Record* race = find_race(*cell, a, r, write)) return on_race(*race, write);
    leave_record(*cell, a);
  }
}

// The same for all of an allocation by a copy: one record, instead of one in each cell.
template <class OnRace>
void visit_whole(const Region& r, const Access& a, const OnRace& on_race) {
  Shadow& shadow = *r.shadow;
  bool write = false;
  if (shadow.concurrent) {
    if (const Record* race = find_race(shadow.whole, a, r, write)) return on_race(*race, write);
    const size_t count = (shadow.bytes() - 1) >> shadow.shift();
    for (size_t i = 0; i <= count; ++i)
      if (const Record* race = find_race(shadow.cells()[i], a, r, write))
        return on_race(*race, write);
  }
  leave_record(shadow.whole, a);
}

}  // namespace minim::emulator::checker
