#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace minim::text {

// 128 bits that tell contents apart; no protection against someone who wants two to be equal.
struct ContentHash {
  uint64_t low = 0, high = 0;
  bool operator==(const ContentHash&) const = default;
  // 32 hexadecimal digits.
  std::string hex() const;
};

// MurmurHash3_x64_128 by Austin Appleby (in the public domain) with seed 0, of bytes that come in
// parts of any size.
class ContentHasher {
 public:
  // What comes behind all that was added before.
  void add(const void* data, size_t bytes);
  void add(std::string_view text) { add(text.data(), text.size()); }
  // The hash of all that was added; more may follow.
  ContentHash finish() const;

 private:
  void mix(const unsigned char* block);
  uint64_t h1_ = 0, h2_ = 0, size_ = 0;
  std::array<unsigned char, 16> rest_ = {};  // size_ % 16 bytes of a block that is not full
};

}  // namespace minim::text
