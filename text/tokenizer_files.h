#pragma once

#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace minim::text {

// A tokenizer, and a sentence on everything that was decided or passed over while reading it.
struct LoadedTokenizer {
  Tokenizer tokenizer;
  std::vector<std::string> notes;
};

// Reads tokenizer.json, or else vocab.txt, from a folder, with tokenizer_config.json,
// special_tokens_map.json and added_tokens.json where they exist. A key of tokenizer_config.json
// wins over tokenizer.json; where neither says whether to lower-case, the vocabulary decides.
// Throws Error, one sentence that begins with the file, for what it cannot follow exactly.
LoadedTokenizer load_tokenizer(const std::string& folder);

// Writes vocab.txt, tokenizer.json, tokenizer_config.json and special_tokens_map.json into an
// existing folder; each file is replaced in one step.
void save_tokenizer(const Tokenizer& tokenizer, const std::string& folder);

}  // namespace minim::text
