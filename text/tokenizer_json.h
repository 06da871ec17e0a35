#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

// The JSON files of a Hugging Face tokenizer, as text. Every Error begins with `path`.
namespace minim::text {

// Reads a tokenizer.json. Models other than WordPiece and pipelines other than BERT's are refused;
// its truncation and padding give the sides only.
TokenizerConfig parse_tokenizer_json(std::string_view contents, const std::string& path,
                                     std::vector<std::string>& notes);

// What tokenizer_config.json and its companions may say; what is absent says nothing.
struct TokenizerSettings {
  std::optional<bool> do_lower_case;
  std::optional<std::optional<bool>> strip_accents;  // the inner none is JSON's null
  std::optional<bool> tokenize_chinese_chars;
  std::optional<bool> clean_up_tokenization_spaces;
  std::optional<int64_t> model_max_length;  // 1e20 and more mean unset
  std::optional<Side> padding_side, truncation_side;
  std::optional<std::string> unk, cls, sep, pad, mask;
  std::optional<std::string> tokenizer_class;
  std::vector<AddedToken> added_tokens;
};

// Reads a tokenizer_config.json.
TokenizerSettings parse_tokenizer_config(std::string_view contents, const std::string& path);

// Fills in the names of special tokens that are absent, from a special_tokens_map.json.
void parse_special_tokens_map(std::string_view contents, const std::string& path,
                              TokenizerSettings& settings);

// Adds the tokens of an added_tokens.json.
void parse_added_tokens(std::string_view contents, const std::string& path,
                        TokenizerSettings& settings);

// The files' contents for a tokenizer; Hugging Face loads them and gives the same ids.
std::string format_tokenizer_json(const TokenizerConfig& config);
std::string format_tokenizer_config(const TokenizerConfig& config);
std::string format_special_tokens_map(const TokenizerConfig& config);

}  // namespace minim::text
