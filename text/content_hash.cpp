#include "text/content_hash.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

namespace minim::text {
namespace {

constexpr uint64_t c1 = 0x87c37b91114253d5, c2 = 0x4cf5ad432745937f;

uint64_t little_endian(const unsigned char* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, 8);
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

uint64_t mixed_first(uint64_t k) {
  return std::rotl(k * c1, 31) * c2;
}
uint64_t mixed_second(uint64_t k) {
  return std::rotl(k * c2, 33) * c1;
}

uint64_t spread(uint64_t k) {
  k = (k ^ k >> 33) * 0xff51afd7ed558ccd;
  k = (k ^ k >> 33) * 0xc4ceb9fe1a85ec53;
  return k ^ k >> 33;
}

}  // namespace

std::string ContentHash::hex() const {
  return fmt::format("{:016x}{:016x}", low, high);
}

void ContentHasher::mix(const unsigned char* block) {
  h1_ ^= mixed_first(little_endian(block));
  h1_ = (std::rotl(h1_, 27) + h2_) * 5 + 0x52dce729;
  h2_ ^= mixed_second(little_endian(block + 8));
  h2_ = (std::rotl(h2_, 31) + h1_) * 5 + 0x38495ab5;
}

void ContentHasher::add(const void* data, size_t bytes) {
  const auto* from = static_cast<const unsigned char*>(data);
  const auto waiting = size_t(size_ % 16);
  size_ += bytes;
  if (waiting > 0) {
    const size_t taken = std::min(bytes, 16 - waiting);
    std::copy_n(from, taken, rest_.begin() + ptrdiff_t(waiting));
    from += taken;
    bytes -= taken;
    if (waiting + taken < 16) return;
    mix(rest_.data());
  }
  for (; bytes >= 16; bytes -= 16, from += 16)
    mix(from);
  std::copy_n(from, bytes, rest_.begin());
}

ContentHash ContentHasher::finish() const {
  // What is left, filled up with zeros; a word of zeros mixes to zero.
  std::array<unsigned char, 16> last = {};
  std::copy_n(rest_.begin(), size_ % 16, last.begin());
  uint64_t h1 = h1_ ^ mixed_first(little_endian(last.data())) ^ size_;
  uint64_t h2 = h2_ ^ mixed_second(little_endian(last.data() + 8)) ^ size_;
  h1 += h2;
  h2 += h1;
  h1 = spread(h1);
  h2 = spread(h2);
  h1 += h2;
  h2 += h1;
  return {h1, h2};
}

}  // namespace minim::text
