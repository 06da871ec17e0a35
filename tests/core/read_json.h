#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "core/file.h"

namespace minim::test {

// The JSON of a file; throws where it is none.
inline nlohmann::json read_json(const std::string& path) {
  return nlohmann::json::parse(read_whole_file(path));
}

}  // namespace minim::test
