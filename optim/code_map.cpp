#include "optim/code_map.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "core/error.h"

namespace minim::optim {

namespace {

constexpr uint32_t sign = 0x80000000u, magnitude = 0x7FFFFFFFu, infinity = 0x7F800000u;

using Values = CodeMap::Values;

// Zero, one, and the value in the middle of each part of each decade. `middle(decade, part, parts)`
// says how it is rounded.
template <class Middle>
Values dynamic_values(bool is_signed, const Middle& middle) {
  std::vector<float> values = {0.0f, 1.0f};
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = is_signed ? 1 << decade : 2 << decade;
    for (int part = 0; part < parts; ++part) {
      values.push_back(middle(decade, part, parts));
      if (is_signed) values.push_back(-values.back());
    }
  }
  std::ranges::sort(values);
  Values sorted;
  std::ranges::copy(values, sorted.begin());
  return sorted;
}

constexpr double decades[] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0};

float exact_middle(int decade, int part, int parts) {
  return float((0.1 + (part + 0.5) * 0.9 / parts) * decades[decade]);
}

// As bitsandbytes and PyTorch's float linspace with fused multiply-add give it.
float library_middle(int decade, int part, int parts) {
  const float step = (1.0f - 0.1f) / float(parts);
  const auto boundary = [&](int k) {
    return k < (parts + 1) / 2 ? std::fma(step, float(k), 0.1f)
                               : std::fma(-step, float(parts - k), 1.0f);
  };
  const float mean = (boundary(part) + boundary(part + 1)) / 2.0f;
  return float(decades[decade]) * mean;
}

Values linear_values(bool is_signed) {
  Values values;
  for (int code = 0; code < 256; ++code)
    values[size_t(code)] =
        is_signed ? float(std::min(code - 127, 127) / 127.0) : float(code / 255.0);
  return values;
}

// Bit patterns above `last` are infinities and NaN.
Values fp8_values(int mantissa_bits, uint8_t last) {
  const int bias = mantissa_bits == 3 ? 7 : 15, ones = 1 << mantissa_bits;
  const auto decode = [&](int code) {
    const int exponent = code >> mantissa_bits, fraction = code % ones;
    return exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissa_bits)
                         : std::ldexp(ones + fraction, exponent - bias - mantissa_bits);
  };
  Values values;
  for (int code = 0; code < 128; ++code) {
    const double value = code <= last ? decode(code) / decode(last) : std::nan("");
    values[size_t(code)] = float(value);
    values[size_t(code) + 128] = -float(value);
  }
  return values;
}

}  // namespace

CodeMap::CodeMap(const Values& values, const Rules& rules)
    : values_(values), rules_(rules), search_(size_t(1) << 16) {
  flip_ = rules.order == Order::ascending ? magnitude : 0;
  const bool negative = values[0] < 0;
  if (rules.order == Order::sign_magnitude) {
    fill_cells(0, 0x7FFF, 0, rules.last);
    fill_cells(0x8000, 0xFFFF, 0x80, uint8_t(0x80 | rules.last));
  } else {
    // From zero on; the code of zero lies on both sides of it.
    const auto zero = uint8_t(std::ranges::find(values, 0.0f) - values.begin());
    fill_cells(0, 0x7FFF, zero, rules.last);
    fill_cells(0x8000, 0xFFFF, 0, negative ? zero : 0);
  }
  for (uint32_t cell = 0; cell <= 0xFFFF; ++cell) {
    const uint32_t key = cell << 16;
    const uint32_t size = (key ^ (key & sign ? flip_ : 0)) & magnitude;
    if (size > (infinity | 0xFFFFu)) search_[cell] = uint32_t(rules.nan) << 16;
  }
}

uint32_t CodeMap::last_key_of(uint8_t code) const {
  const float low = values_[code], high = values_[code + 1];
  if (rules_.floor && low == 0.0f && !std::signbit(low)) return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(float((double(low) + double(high)) / 2.0));
  const uint32_t key = bits ^ (bits & sign ? flip_ : 0);
  const bool tie_goes_up = rules_.ties == Ties::to_even && code % 2 == 1;
  return tie_goes_up ? key - 1 : key;
}

void CodeMap::fill_cells(uint32_t first_cell, uint32_t last_cell, uint8_t lowest, uint8_t highest) {
  uint32_t code = lowest;
  for (uint32_t cell = first_cell; cell <= last_cell; ++cell) {
    search_[cell] = code << 16;
    if (code == highest) continue;
    const uint32_t boundary = last_key_of(uint8_t(code));
    if (boundary >> 16 != cell) continue;
    search_[cell] += 0xFFFFu - (boundary & 0xFFFFu);
    ++code;
    check(code == highest || last_key_of(uint8_t(code)) >> 16 > cell,
          "code map: codes {} to {} are too close to each other", code - 1, code + 1);
  }
}

std::vector<std::string_view> code_map_names() {
  return {"dynamic", "linear", "fp8_e4m3", "fp8_e5m2"};
}

const CodeMap& code_map(std::string_view name, bool is_signed, bool floor) {
  using Key = std::tuple<std::string, bool, bool>;
  static std::mutex mutex;
  static std::map<Key, const CodeMap> made;
  const std::lock_guard lock(mutex);
  const Key key(name, is_signed, floor);
  if (const auto found = made.find(key); found != made.end()) return found->second;

  Values values;
  CodeMap::Rules rules = {.floor = floor};
  if (name == "dynamic") {
    values = dynamic_values(is_signed, exact_middle);
  } else if (name == "bitsandbytes") {
    values = dynamic_values(is_signed, library_middle);
    rules.ties = CodeMap::Ties::to_lower;
    rules.raise_scales = true;
  } else if (name == "linear") {
    values = linear_values(is_signed);
    rules.last = is_signed ? 254 : 255;
  } else if (name == "fp8_e4m3" || name == "fp8_e5m2") {
    const bool e4m3 = name == "fp8_e4m3";
    rules.order = CodeMap::Order::sign_magnitude;
    rules.last = e4m3 ? 0x7E : 0x7B;
    rules.nan = 0x7F;
    values = fp8_values(e4m3 ? 3 : 2, rules.last);
  } else {
    std::string known;
    for (const std::string_view other : code_map_names())
      known += fmt::format("{}, ", other);
    fail("code map: \"{}\" is unknown; there are {}bitsandbytes", name, known);
  }
  return made.try_emplace(key, values, rules).first->second;
}

}  // namespace minim::optim
