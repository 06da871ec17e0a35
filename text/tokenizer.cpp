#include "text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/error.h"
#include "text/utf8.h"

namespace minim::text {
namespace {

TemplatePiece text_place(int text) {
  TemplatePiece piece;
  piece.text = text;
  piece.type_id = text;
  return piece;
}

TemplatePiece special_place(const AddedToken& token, int32_t type_id) {
  return {-1, {token.id}, {token.content}, type_id};
}

// The content as the normaliser leaves it, since that is where normalised tokens are looked for.
std::string normalized_content(const NormalizerOptions& options, const std::string& content) {
  std::vector<NormalizedChar> chars;
  for (size_t at = 0; at < content.size();) {
    const DecodedUtf8 next = decode_utf8(content, at);
    chars.push_back({next.code_point, 0});
    at += size_t(next.length);
  }
  normalize(options, chars);
  std::string text;
  for (const NormalizedChar c : chars)
    append_utf8(text, c.code_point);
  return text;
}

// Each text of the template occurs once and each id exists.
void check_template(const std::vector<TemplatePiece>& pieces, int texts, int64_t vocab_size,
                    std::string_view name) {
  for (int text = 0; text < texts; ++text)
    check(std::count_if(pieces.begin(), pieces.end(),
                        [&](const TemplatePiece& piece) { return piece.text == text; }) == 1,
          "{}: the {} template must hold text {} exactly once", name,
          texts == 1 ? "single" : "pair", text == 0 ? 'A' : 'B');
  for (const TemplatePiece& piece : pieces) {
    check(piece.text < texts, "{}: the single template must not hold text B", name);
    for (const int32_t id : piece.ids)
      check(id >= 0 && id < vocab_size, "{}: a template has token id {}, the highest id is {}",
            name, id, vocab_size - 1);
  }
}

// The library's clean-up of one token; the space before it has been added.
std::string clean_up(std::string token) {
  constexpr std::pair<std::string_view, std::string_view> replacements[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
  };
  for (const auto& [from, to] : replacements)
    for (size_t at = token.find(from); at != std::string::npos; at = token.find(from, at))
      token.replace(at, from.size(), to), at += to.size();
  return token;
}

template <class T>
void pad_with(std::vector<T>& values, size_t count, Side side, const T& value) {
  values.insert(side == Side::left ? values.begin() : values.end(), count, value);
}

}  // namespace

TokenizerConfig TokenizerConfig::bert(std::vector<std::string> pieces, bool lowercase,
                                      SpecialTokenNames special, std::string_view name) {
  TokenizerConfig config;
  config.pieces = std::move(pieces);
  config.normalizer.lowercase = lowercase;
  config.wordpiece.unk_token = special.unk;
  config.special = std::move(special);
  const auto token_of = [&](const std::string& content) -> std::optional<AddedToken> {
    const auto found = std::find(config.pieces.begin(), config.pieces.end(), content);
    if (found == config.pieces.end() || content.empty()) return std::nullopt;
    AddedToken token;
    token.content = content;
    token.id = int32_t(found - config.pieces.begin());
    return token;
  };
  const auto& names = config.special;
  const auto cls = token_of(names.cls), sep = token_of(names.sep);
  check(cls.has_value(), "{}: the vocabulary has no {}", name, names.cls);
  check(sep.has_value(), "{}: the vocabulary has no {}", name, names.sep);
  config.single = {special_place(*cls, 0), text_place(0), special_place(*sep, 0)};
  config.pair = config.single;
  config.pair.push_back(text_place(1));
  config.pair.push_back(special_place(*sep, 1));
  for (const auto& token :
       {token_of(names.pad), token_of(names.unk), cls, sep, token_of(names.mask)})
    if (token) config.added_tokens.push_back(*token);
  return config;
}

Tokenizer::Tokenizer(TokenizerConfig config, std::string_view name)
    : config_(std::move(config)),
      wordpiece_(config_.pieces, config_.wordpiece, name),
      id_encoder_(config_.normalizer, wordpiece_) {
  auto& added = config_.added_tokens;
  std::stable_sort(added.begin(), added.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
  std::vector<AddedToken> raw, normalized;
  for (const AddedToken& token : added) {
    check(!token.content.empty(), "{}: the added token with id {} is empty", name, token.id);
    const int32_t known = wordpiece_.find(token.content);
    check(known < 0 || known == token.id, "{}: added token {} has id {}, vocabulary has {}", name,
          token.content, token.id, known);
    if (known < 0) {
      check(token.id == vocab_size(), "{}: added token {} has id {}, the vocabulary ends at {}",
            name, token.content, token.id, vocab_size() - 1);
      check(!token_to_id(token.content), "{}: added token {} occurs twice", name, token.content);
      appended_.push_back(
          {token.content, token.normalized ? normalized_content(config_.normalizer, token.content)
                                           : token.content});
    }
    (token.normalized ? normalized : raw).push_back(token);
  }
  is_special_.resize(size_t(vocab_size()));
  for (const AddedToken& token : added)
    if (token.special) is_special_[size_t(token.id)] = true;
  for (AddedToken& token : normalized)
    token.content = normalized_content(config_.normalizer, token.content);
  raw_ = AddedTokenMatcher(std::move(raw));
  normalized_ = AddedTokenMatcher(std::move(normalized));
  check_template(config_.single, 1, vocab_size(), name);
  check_template(config_.pair, 2, vocab_size(), name);
}

const std::vector<TemplatePiece>& Tokenizer::template_of(bool pair) const {
  return pair ? config_.pair : config_.single;
}

int64_t Tokenizer::num_special_tokens_to_add(bool pair) const {
  int64_t count = 0;
  for (const TemplatePiece& piece : template_of(pair))
    count += int64_t(piece.ids.size());
  return count;
}

// Tokens of the texts themselves that fit.
int64_t Tokenizer::budget(bool pair, const EncodeOptions& options) const {
  if (!options.max_length || options.truncation == Truncation::do_not_truncate)
    return std::numeric_limits<int64_t>::max();
  const int64_t specials = options.add_special_tokens ? num_special_tokens_to_add(pair) : 0;
  check(*options.max_length >= specials,
        "tokenizer: max_length {} is smaller than the number of special tokens of a {} ({})",
        *options.max_length, pair ? "pair" : "single text", specials);
  return *options.max_length - specials;
}

const std::string& Tokenizer::token_string(int32_t id) const {
  const auto index = size_t(id);
  return index < config_.pieces.size() ? config_.pieces[index]
                                       : appended_[index - config_.pieces.size()].shown;
}

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  if (const int32_t id = wordpiece_.find(token); id >= 0) return id;
  for (size_t i = 0; i < appended_.size(); ++i)
    if (appended_[i].content == token) return int32_t(config_.pieces.size() + i);
  return std::nullopt;
}

std::optional<std::string> Tokenizer::id_to_token(int32_t id) const {
  if (id < 0 || id >= vocab_size() || token_string(id).empty()) return std::nullopt;
  return token_string(id);
}

std::optional<int32_t> Tokenizer::id_of_name(const std::string& name) const {
  return name.empty() ? std::nullopt : token_to_id(name);
}

std::optional<int32_t> Tokenizer::pad_token_id() const {
  return id_of_name(config_.special.pad);
}
std::optional<int32_t> Tokenizer::cls_token_id() const {
  return id_of_name(config_.special.cls);
}
std::optional<int32_t> Tokenizer::sep_token_id() const {
  return id_of_name(config_.special.sep);
}
std::optional<int32_t> Tokenizer::mask_token_id() const {
  return id_of_name(config_.special.mask);
}

void Tokenizer::pad(std::vector<Encoding>& batch, const PaddingOptions& options) const {
  const auto pad_id = pad_token_id();
  check(pad_id.has_value(), "tokenizer: the vocabulary has no padding token {}",
        config_.special.pad);
  check(options.pad_to_multiple_of >= 1, "tokenizer: pad_to_multiple_of is {}, must be at least 1",
        options.pad_to_multiple_of);
  size_t target = 0;
  for (const Encoding& encoding : batch)
    target = std::max(target, encoding.ids.size());
  if (options.length) {
    check(*options.length >= 0, "tokenizer: padding length is {}, must not be negative",
          *options.length);
    target = size_t(*options.length);
  }
  const auto multiple = size_t(options.pad_to_multiple_of);
  target = (target + multiple - 1) / multiple * multiple;
  const Side side = options.side.value_or(config_.padding_side);
  for (Encoding& encoding : batch) {
    if (encoding.ids.size() >= target) continue;
    const size_t count = target - encoding.ids.size();
    pad_with(encoding.ids, count, side, *pad_id);
    pad_with(encoding.tokens, count, side, config_.special.pad);
    pad_with(encoding.type_ids, count, side, 0);
    pad_with(encoding.attention_mask, count, side, 0);
    pad_with(encoding.offsets, count, side, Span{0, 0});
    pad_with(encoding.byte_offsets, count, side, Span{0, 0});
  }
}

std::string Tokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  const std::string& prefix = config_.wordpiece.continuing_subword_prefix;
  const bool clean =
      options.clean_up_tokenization_spaces.value_or(config_.clean_up_tokenization_spaces);
  std::string text;
  bool first = true;
  for (const int32_t id : ids) {
    if (id < 0 || id >= vocab_size() || token_string(id).empty()) continue;
    if (options.skip_special_tokens && is_special_[size_t(id)]) continue;
    std::string token;
    if (first)
      token = token_string(id);
    else if (token_string(id).starts_with(prefix))
      token = token_string(id).substr(prefix.size());
    else
      token.append(1, ' ').append(token_string(id));
    first = false;
    text += clean ? clean_up(std::move(token)) : token;
  }
  return text;
}

}  // namespace minim::text
