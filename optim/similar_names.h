#pragma once

#include <span>
#include <string>
#include <string_view>

namespace minim::optim {

// The end of a sentence about a name that is none: "; similar: " and up to three of those there
// are, or nothing. Names that end as asked come first, for those who leave out a model's prefix.
std::string similar_names(std::string_view asked, std::span<const std::string_view> names);

}  // namespace minim::optim
