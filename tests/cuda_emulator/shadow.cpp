#include "tests/cuda_emulator/shadow.h"

#include <cstring>
#include <new>

namespace minim::emulator {

namespace {

Cell* allocate_cells(size_t bytes, unsigned shift) {
  const size_t count = (bytes >> shift) + 1;
  void* p = std::calloc(count, sizeof(Cell));
  if (p == nullptr) throw std::bad_alloc();
  return static_cast<Cell*>(p);
}

}  // namespace

void Shadow::reset(size_t bytes) {
  if (bytes == bytes_ && cells_) {
    std::memset(written_.get(), 0, bytes_);
    return;  // records of the past are known by their seq
  }
  bytes_ = bytes;
  shift_ = 2;
  whole = Cell();
  cells_.reset(allocate_cells(bytes, shift_));
  written_.reset(static_cast<uint8_t*>(std::calloc(bytes + 1, 1)));
  if (!written_) throw std::bad_alloc();
}

void Shadow::release() {
  bytes_ = 0;
  cells_.reset();
  written_.reset();
}

void Shadow::refine(unsigned shift) {
  Cell* finer = allocate_cells(bytes_, shift);
  const size_t count = (bytes_ >> shift) + 1;
  const unsigned steps = shift_ - shift;
  for (size_t i = 0; i < count; ++i)
    finer[i] = cells_[i >> steps];
  cells_.reset(finer);
  shift_ = shift;
}

bool Shadow::is_written(size_t offset, size_t bytes) const {
  const uint8_t* p = written_.get() + offset;
  if (bytes == 4) {
    uint32_t four;
    std::memcpy(&four, p, 4);
    return four == 0x01010101u;
  }
  return std::memchr(p, 0, bytes) == nullptr;
}

size_t Shadow::first_unwritten(size_t offset, size_t bytes) const {
  const void* p = std::memchr(written_.get() + offset, 0, bytes);
  return p == nullptr ? offset + bytes : size_t(static_cast<const uint8_t*>(p) - written_.get());
}

void Shadow::set_written(size_t offset, size_t bytes) {
  if (bytes == 4) {
    const uint32_t four = 0x01010101u;
    std::memcpy(written_.get() + offset, &four, 4);
  } else {
    std::memset(written_.get() + offset, 1, bytes);
  }
}

void Shadow::copy_written(size_t offset, const Shadow& from, size_t from_offset, size_t bytes) {
  std::memmove(written_.get() + offset, from.written_.get() + from_offset, bytes);
}

}  // namespace minim::emulator
