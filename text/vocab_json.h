#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace minim::text {

// A tokenizer.json whose large part has been taken out.
struct SplitTokenizerJson {
  std::string rest;  // the file as JSON, with an empty model.vocab
  std::vector<std::pair<std::string, int32_t>> vocab;  // model.vocab, in the file's order
};

// Takes model.vocab out without building a tree of its 30,000 entries, which would take most of a
// program's start. Throws Error, beginning with `path`, for what is not JSON, is nested too deeply,
// or has ids that are no token ids.
SplitTokenizerJson split_vocab(std::string_view contents, const std::string& path);

// Ids must be below this: a table is made of their number, and no vocabulary comes near.
constexpr int64_t most_token_ids = 1 << 22;

}  // namespace minim::text
