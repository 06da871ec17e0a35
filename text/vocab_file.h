#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minim::text {

// Reads the contents of a vocab.txt: one piece a line, the zero-based line is the id. White space
// at line ends, a byte order mark and blank lines at the end are dropped; a blank line inside keeps
// its id; of two equal lines the later counts, unless the piece is one of `specials`. `notes` gets
// a sentence on each of these; Errors begin with `path` and the line.
std::vector<std::string> parse_vocab(std::string_view contents, const std::string& path,
                                     const std::vector<std::string>& specials,
                                     std::vector<std::string>& notes);

// The contents of a vocab.txt with these pieces.
std::string format_vocab(const std::vector<std::string>& pieces);

// Whether pieces were made from text with its case kept: one of them has an ASCII capital and is
// not a name in brackets.
bool has_cased_pieces(const std::vector<std::string>& pieces);

}  // namespace minim::text
