#include "core/safetensors_header.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include <fmt/core.h>

#include "core/printable.h"
#include "core/safetensors.h"
#include "core/safetensors_json.h"

namespace minim {
namespace {

static_assert(std::endian::native == std::endian::little, "weight files are little-endian");

constexpr uint64_t length_bytes = 8;
constexpr uint64_t most_header_bytes = 100'000'000;

// Throws with the reference reader's name of the broken rule.
template <class... Args>
[[noreturn]] void reject(std::string_view rule, fmt::format_string<Args...> text, Args&&... args) {
  throw SafetensorsError(rule, fmt::format(text, std::forward<Args>(args)...));
}

// Rules 6 to 9 of one tensor, which must begin where the one before it ended.
void check_entry(const std::string& path, const SafetensorsEntry& entry, uint64_t expected_begin) {
  const std::string name = printable(entry.name);
  if (entry.begin != expected_begin || entry.end < entry.begin) {
    reject(
        "InvalidOffset",
        "{}: invalid offset for tensor {}: data_offsets [{}, {}], it must begin at {}, where the "
        "one before it ends, and not end before that",
        path, name, entry.begin, entry.end, expected_begin);
  }
  uint64_t bits = 1;
  bool overflow = false;
  for (const uint64_t d : entry.shape)
    overflow |= __builtin_mul_overflow(bits, d, &bits);
  overflow |= __builtin_mul_overflow(bits, bits_of(entry.dtype), &bits);
  if (overflow) {
    reject("ValidationOverflow",
           "{}: overflow computing buffer size: tensor {} of {} {} has more than 2^64 bits", path,
           name, name_of(entry.dtype), shape_text(entry.shape));
  }
  if (bits % 8 != 0) {
    reject(
        "MisalignedSlice",
        "{}: misaligned slice: tensor {} of {} {} has {} bits, which is no whole number of bytes",
        path, name, name_of(entry.dtype), shape_text(entry.shape), bits);
  }
  if (entry.end - entry.begin != bits / 8) {
    reject("TensorInvalidInfo",
           "{}: invalid shape, data type, or offset for tensor {}: {} {} takes {} bytes, its "
           "data_offsets [{}, {}] span {}",
           path, name, name_of(entry.dtype), shape_text(entry.shape), bits / 8, entry.begin,
           entry.end, entry.end - entry.begin);
  }
}

// A JSON string as the reference writer spells it: raw UTF-8, short escapes where JSON has them.
void append_quoted(std::string& out, std::string_view text) {
  constexpr std::string_view special = "\"\\\b\f\n\r\t";
  constexpr std::string_view letters = "\"\\bfnrt";
  out += '"';
  for (const char c : text) {
    if (const size_t at = special.find(c); at != special.npos) {
      out += '\\';
      out += letters[at];
    } else if (uint8_t(c) < 0x20) {
      out += fmt::format("\\u{:04x}", uint8_t(c));
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace

std::string shape_text(const std::vector<uint64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return text + "]";
}

SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view file) {
  if (file.size() < length_bytes) {
    reject("HeaderTooSmall", "{}: header too small: the file has {} bytes, it must have at least 8",
           path, file.size());
  }
  uint64_t length = 0;
  std::memcpy(&length, file.data(), length_bytes);
  if (length > most_header_bytes) {
    reject("HeaderTooLarge", "{}: header too large: {} bytes, it may have at most {}", path, length,
           most_header_bytes);
  }
  if (length > file.size() - length_bytes) {
    reject("InvalidHeaderLength",
           "{}: invalid header length: {} bytes, of which the file of {} bytes has only {}", path,
           length, file.size(), file.size() - length_bytes);
  }
  const std::string_view json = file.substr(length_bytes, length);
  if (const size_t bad = first_invalid_utf8(json); bad != json.size()) {
    reject("InvalidHeader", "{}: invalid UTF-8 in header: byte {} of it", path, bad);
  }
  SafetensorsHeader header;
  if (const std::string problem = read_safetensors_json(json, header); !problem.empty()) {
    reject("InvalidHeaderDeserialization", "{}: invalid JSON in header: {}", path, problem);
  }
  header.data_begin = length_bytes + length;

  std::ranges::stable_sort(header.entries, {}, [](const SafetensorsEntry& entry) {
    return std::pair(entry.begin, entry.end);
  });
  uint64_t end = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    check_entry(path, entry, end);
    end = entry.end;
  }
  if (const uint64_t present = file.size() - header.data_begin; end != present) {
    reject("MetadataIncompleteBuffer",
           "{}: incomplete metadata, file not fully covered: its tensors take {} bytes, after the "
           "header there are {}",
           path, end, present);
  }
  return header;
}

std::string build_safetensors_header(std::vector<SafetensorsEntry>& entries,
                                     const Metadata& metadata) {
  std::ranges::sort(entries, [](const SafetensorsEntry& a, const SafetensorsEntry& b) {
    return std::tie(b.dtype, a.name) < std::tie(a.dtype, b.name);
  });
  std::string json = "{";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, text] : metadata) {
      if (json.back() != '{') json += ',';
      append_quoted(json, key);
      json += ':';
      append_quoted(json, text);
    }
    json += '}';
  }
  uint64_t offset = 0;
  for (SafetensorsEntry& entry : entries) {
    uint64_t bits = bits_of(entry.dtype);
    for (const uint64_t d : entry.shape)
      bits *= d;
    entry.begin = offset;
    entry.end = offset += bits / 8;
    if (json.size() > 1) json += ',';
    append_quoted(json, entry.name);
    json += fmt::format(R"(:{{"dtype":"{}","shape":[)", name_of(entry.dtype));
    for (size_t i = 0; i < entry.shape.size(); ++i) {
      json += fmt::format("{}{}", i ? "," : "", entry.shape[i]);
    }
    json += fmt::format(R"(],"data_offsets":[{},{}]}})", entry.begin, entry.end);
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const uint64_t length = json.size();
  std::string header(length_bytes, '\0');
  std::memcpy(header.data(), &length, length_bytes);
  return header + json;
}

}  // namespace minim
