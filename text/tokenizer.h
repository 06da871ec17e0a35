#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/added_tokens.h"
#include "text/id_encoder.h"
#include "text/normalizer.h"
#include "text/truncation.h"
#include "text/wordpiece.h"

namespace minim::text {

// What to do with bytes that are not UTF-8.
enum class InvalidUtf8 : uint8_t {
  refuse,  // an Error that names the byte offset
  replace  // U+FFFD for each maximal ill-formed subsequence, which the normaliser deletes
};

struct EncodeOptions {
  bool add_special_tokens = true;          // [CLS] ... [SEP]
  bool split_special_tokens = false;       // special tokens inside the text are ordinary text
  std::optional<int64_t> max_length = {};  // tokens, special ones included; none: nothing is cut
  Truncation truncation = Truncation::longest_first;
  std::optional<Side> truncation_side = {};  // none: the tokenizer's own
  InvalidUtf8 invalid_utf8 = InvalidUtf8::refuse;
};

struct PaddingOptions {
  std::optional<int64_t> length = {};  // none: the longest of the batch
  int64_t pad_to_multiple_of = 1;      // the target is rounded up to a multiple of this
  std::optional<Side> side = {};       // none: the tokenizer's own
};

struct DecodeOptions {
  bool skip_special_tokens = false;
  std::optional<bool> clean_up_tokenization_spaces = {};  // none: the tokenizer's own
};

// Half-open range of the text a token stands for; [0, 0) for special and pad tokens that were
// added.
struct Span {
  int64_t begin, end;
  bool operator==(const Span&) const = default;
};

// One encoded text or pair; all vectors are as long as ids.
struct Encoding {
  std::vector<int32_t> ids;
  std::vector<std::string> tokens;
  std::vector<int32_t> type_ids;        // 0 for the first text, 1 for the second
  std::vector<int32_t> attention_mask;  // 0 for padding
  std::vector<Span> offsets;            // code points of the text, or of the second text
  std::vector<Span> byte_offsets;       // the same in bytes
  int64_t truncated = 0;                // tokens that were cut off
};

// One entry of a template: the place of a text, or special tokens.
struct TemplatePiece {
  int text = -1;  // 0: the first text, 1: the second, -1: special tokens
  std::vector<int32_t> ids;
  std::vector<std::string> tokens;
  int32_t type_id = 0;
  bool operator==(const TemplatePiece&) const = default;
};

// Names of the tokens with a task; an empty name means that there is none.
struct SpecialTokenNames {
  std::string unk = "[UNK]", cls = "[CLS]", sep = "[SEP]", pad = "[PAD]", mask = "[MASK]";
};

// Everything that makes up a tokenizer; tokenizer_files.h reads and writes it.
struct TokenizerConfig {
  std::vector<std::string> pieces;  // by id; an empty one is an id without a piece
  WordPiece::Options wordpiece;
  NormalizerOptions normalizer;
  std::vector<AddedToken> added_tokens;
  std::vector<TemplatePiece> single, pair;  // what to put around one text or two
  SpecialTokenNames special;
  std::optional<int64_t> model_max_length = {};  // none: as long as the model has positions
  Side padding_side = Side::right, truncation_side = Side::right;
  bool clean_up_tokenization_spaces = true;
  std::string tokenizer_class = "DistilBertTokenizer";  // the Python class that reads the files

  // BERT's settings for a vocabulary: [CLS] A [SEP] (B [SEP]), and those of the five special tokens
  // that it has. Throws Error, beginning with `name`, when it has no cls or sep token.
  static TokenizerConfig bert(std::vector<std::string> pieces, bool lowercase,
                              SpecialTokenNames special = {}, std::string_view name = "tokenizer");
};

// A WordPiece tokenizer that gives the ids, tokens and offsets of Hugging Face's fast tokenizers.
// Const members may be called from several threads at once.
class Tokenizer {
 public:
  // Throws Error, whose text begins with `name`, when the vocabulary contradicts itself or lacks a
  // token that the rest names.
  explicit Tokenizer(TokenizerConfig config, std::string_view name = "tokenizer");

  // Encodes a text, or a pair of texts. Throws Error for bytes that are not UTF-8, for a max_length
  // below the number of special tokens, and where a truncation strategy cannot make enough room.
  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  Encoding encode(std::string_view text, std::string_view pair,
                  const EncodeOptions& options = {}) const;

  // The same ids into `ids`, replacing what it holds, many times faster and without allocating once
  // the vector is large enough. Returns how many tokens were cut off.
  int64_t encode_ids(std::string_view text, std::vector<int32_t>& ids,
                     const EncodeOptions& options = {}) const;
  int64_t encode_ids(std::string_view text, std::string_view pair, std::vector<int32_t>& ids,
                     std::vector<int32_t>& type_ids, const EncodeOptions& options = {}) const;

  // Makes encodings equally long. Longer ones than the target stay as they are.
  void pad(std::vector<Encoding>& batch, const PaddingOptions& options = {}) const;

  // Joins tokens into a text for display; ids that do not exist are left out.
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options = {}) const;

  // One more than the highest id: the rows that an embedding table needs.
  int64_t vocab_size() const { return int64_t(config_.pieces.size() + appended_.size()); }
  std::optional<int32_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int32_t id) const;
  // Number of special tokens that encode() adds to one text or to a pair.
  int64_t num_special_tokens_to_add(bool pair) const;

  std::optional<int32_t> pad_token_id() const;
  std::optional<int32_t> cls_token_id() const;
  std::optional<int32_t> sep_token_id() const;
  std::optional<int32_t> mask_token_id() const;
  int32_t unk_token_id() const { return wordpiece_.unk_id(); }

  const TokenizerConfig& config() const { return config_; }

 private:
  struct Token {
    int32_t id;
    Span offsets;        // code points
    std::string string;  // empty: the vocabulary's
  };
  // The library shows normalised tokens as the normaliser leaves them.
  struct Appended {
    std::string content, shown;
  };
  int64_t budget(bool pair, const EncodeOptions& options) const;
  const std::vector<TemplatePiece>& template_of(bool pair) const;
  const std::string& token_string(int32_t id) const;
  std::optional<int32_t> id_of_name(const std::string& name) const;
  std::vector<Token> tokens_of(std::string_view text, const EncodeOptions& options) const;
  Encoding encode_texts(std::span<const std::string_view> texts,
                        const EncodeOptions& options) const;
  void append_ids(std::string_view text, const EncodeOptions& options,
                  std::vector<int32_t>& ids) const;

  TokenizerConfig config_;
  WordPiece wordpiece_;
  IdEncoder id_encoder_;
  AddedTokenMatcher raw_, normalized_;  // tokens looked for before and after normalisation
  std::vector<Appended> appended_;      // added tokens behind the vocabulary, by id - pieces.size()
  std::vector<bool> is_special_;        // by id
};

}  // namespace minim::text
