#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

namespace minim::emulator {

// Who read or wrote last. `seq` grows with every launch, block and barrier; 0: nobody.
struct Record {
  uint32_t seq = 0;
  uint32_t thread = 0;  // of the grid, counted through all blocks; the top bit marks an atomic
  int32_t code = 0;     // where the instruction lies, from a fixed point of the program
};

// The last write and the last reads by two threads: any further write races with one of the two, if
// with any.
struct Cell {
  Record write, read, older_read;
};

// What the checks know of each byte of an allocation or a shared variable.
class Shadow {
 public:
  // Begins anew: `bytes` that nobody has written.
  void reset(size_t bytes);
  void release();
  size_t bytes() const { return bytes_; }

  // A cell stands for 1 << shift() bytes: four until somebody accesses fewer.
  unsigned shift() const { return shift_; }
  void refine(unsigned shift);
  Cell* cells() { return cells_.get(); }

  bool is_written(size_t offset, size_t bytes) const;
  // The first byte in the range that nobody has written.
  size_t first_unwritten(size_t offset, size_t bytes) const;
  void set_written(size_t offset, size_t bytes);
  void copy_written(size_t offset, const Shadow& from, size_t from_offset, size_t bytes);

  // Accesses of all of it at once, by copies and memsets.
  Cell whole;
  // Some use of this memory is not ordered before the running work: its records must be looked at.
  bool concurrent = false;

 private:
  struct Free {
    void operator()(void* p) const { std::free(p); }
  };
  size_t bytes_ = 0;
  unsigned shift_ = 2;
  std::unique_ptr<Cell[], Free> cells_;       // calloc: pages that nobody uses cost nothing
  std::unique_ptr<uint8_t[], Free> written_;  // a byte each, 0 or 1
};

}  // namespace minim::emulator
