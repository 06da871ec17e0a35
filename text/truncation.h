#pragma once

#include <cstdint>
#include <string_view>

namespace minim::text {

// Which text loses tokens when a sequence is too long; Hugging Face's names.
enum class Truncation : uint8_t { longest_first, only_first, only_second, do_not_truncate };

// At which end of a sequence tokens are cut off or padding is put.
enum class Side : uint8_t { right, left };

// The option's name, as written on a command line.
std::string_view name_of(Truncation truncation);
std::string_view name_of(Side side);

// How many tokens of each text stay.
struct KeptTokens {
  int64_t first, second;
};

// Cuts two texts of `first` and `second` tokens (second < 0: there is none) down to `budget` tokens
// together, as Hugging Face's fast tokenizers do: longest_first shortens the longer text to the
// length that is left over, then halves the budget. Throws Error where only_first or only_second
// cannot make enough room.
KeptTokens truncate(int64_t first, int64_t second, int64_t budget, Truncation truncation);

}  // namespace minim::text
