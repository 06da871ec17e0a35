#pragma once

#include <string>
#include <string_view>

#include "core/safetensors_header.h"

namespace minim {

// Reads the JSON of a header into entries (in the order of the text) and metadata. Returns what is
// wrong with it, nothing if it is well-formed and every value has its type.
std::string read_safetensors_json(std::string_view json, SafetensorsHeader& header);

}  // namespace minim
