#pragma once

#include <string>

namespace minim::test {

// Whether a part stands anywhere in a text.
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace minim::test
