#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/stored_dtype.h"

// The header of a safetensors file: 8 bytes of length, then JSON that says where each tensor lies.
// Format: https://github.com/huggingface/safetensors#format
namespace minim {

// Key to value of the `__metadata__` entry.
using Metadata = std::map<std::string, std::string>;

// One tensor as the header lists it.
struct SafetensorsEntry {
  std::string name;
  StoredDType dtype = StoredDType::F32;
  std::vector<uint64_t> shape;
  uint64_t begin = 0;  // bytes from the end of the header
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  Metadata metadata;
  uint64_t data_begin = 0;  // place in the file that the entries count from
};

// Checks the ten rules of the format one after the other and returns what the header says. `file`
// is the whole file, `path` is for messages; throws SafetensorsError. Nothing is allocated from a
// number that the file names.
SafetensorsHeader parse_safetensors_header(const std::string& path, std::string_view file);

// Sorts the entries into canonical order (dtype by descending alignment, then name), gives them
// their offsets, and returns the bytes before the tensors, as the reference writer spells them.
std::string build_safetensors_header(std::vector<SafetensorsEntry>& entries,
                                     const Metadata& metadata);

// "[2, 3]"
std::string shape_text(const std::vector<uint64_t>& shape);

}  // namespace minim
