#pragma once

#include <string>
#include <string_view>

namespace minim {

// Text that came from a file, fit for a message: in quotes, control characters and bytes that are
// not UTF-8 escaped as \x1f, cut after 120 bytes.
std::string printable(std::string_view text);

// Place of the first byte that is not well-formed UTF-8; text.size() if there is none.
size_t first_invalid_utf8(std::string_view text);

}  // namespace minim
