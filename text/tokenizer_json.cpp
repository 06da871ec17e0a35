#include "text/tokenizer_json.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <unordered_set>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "text/vocab_json.h"

namespace minim::text {
namespace {

using nlohmann::json;

json parse(std::string_view contents, const std::string& path) {
  check(!contents.empty(), "{}: not valid JSON: the file is empty", path);
  try {
    return json::parse(contents);
  } catch (const json::parse_error& error) {
    fail("{}: not valid JSON at byte {}", path, error.byte == 0 ? 0 : error.byte - 1);
  }
}

// A JSON object with its place in the file, for messages.
class Object {
 public:
  Object(const json& value, const std::string& path, std::string name)
      : value_(value), path_(path), name_(std::move(name)) {
    check(value.is_object(), "{}: {} must be an object", path_,
          name_.empty() ? "the top level" : name_);
  }

  // The member, or null where it is absent.
  const json& at(const char* key) const {
    static const json null;
    const auto found = value_.find(key);
    return found == value_.end() ? null : *found;
  }
  bool has(const char* key) const { return !at(key).is_null(); }
  std::string place(const char* key) const { return name_.empty() ? key : name_ + "." + key; }
  Object object(const char* key) const {
    check(has(key), "{}: key {} is missing", path_, place(key));
    return {at(key), path_, place(key)};
  }
  // The objects of a list.
  std::vector<Object> objects(const char* key) const {
    check(at(key).is_array(), "{}: {} must be a list", path_, place(key));
    std::vector<Object> all;
    for (const json& element : at(key))
      all.emplace_back(element, path_, fmt::format("{}[{}]", place(key), all.size()));
    return all;
  }

  std::optional<bool> boolean(const char* key) const {
    if (!has(key)) return std::nullopt;
    check(at(key).is_boolean(), "{}: {} must be true or false", path_, place(key));
    return at(key).get<bool>();
  }
  std::optional<std::string> string(const char* key) const {
    if (!has(key)) return std::nullopt;
    check(at(key).is_string(), "{}: {} must be a string", path_, place(key));
    return at(key).get<std::string>();
  }
  std::optional<int64_t> count(const char* key) const {
    if (!has(key)) return std::nullopt;
    check(at(key).is_number_unsigned() && at(key).get<uint64_t>() <= INT32_MAX,
          "{}: {} must be a whole number from 0 to {}", path_, place(key), INT32_MAX);
    return at(key).get<int64_t>();
  }
  bool need_boolean(const char* key) const { return need(key, boolean(key)); }
  std::string need_string(const char* key) const { return need(key, string(key)); }
  int64_t need_count(const char* key) const { return need(key, count(key)); }

  const json& value() const { return value_; }
  const std::string& path() const { return path_; }

 private:
  template <class T>
  T need(const char* key, std::optional<T> value) const {
    check(value.has_value(), "{}: key {} is missing", path_, place(key));
    return *value;
  }

  const json& value_;
  const std::string& path_;
  std::string name_;
};

int32_t token_id(const json& value, std::string_view token, const std::string& path) {
  check(value.is_number_unsigned() && value.get<uint64_t>() < uint64_t(most_token_ids),
        "{}: id {} of {} is not a token id (a whole number below {})", path, value.dump(), token,
        most_token_ids);
  return value.get<int32_t>();
}

AddedToken parse_added_token(const Object& object, int32_t id) {
  AddedToken token;
  token.content = object.need_string("content");
  token.id = id;
  token.single_word = object.boolean("single_word").value_or(false);
  token.lstrip = object.boolean("lstrip").value_or(false);
  token.rstrip = object.boolean("rstrip").value_or(false);
  token.special = object.boolean("special").value_or(false);
  token.normalized = object.boolean("normalized").value_or(!token.special);
  return token;
}

// The component's type, which must be one of `known`.
std::string parse_type(const Object& top, const char* key,
                       std::initializer_list<std::string_view> known) {
  const std::string type = top.object(key).need_string("type");
  if (std::find(known.begin(), known.end(), type) == known.end()) {
    std::string list;
    for (const std::string_view name : known)
      list.append(list.empty() ? "" : " or ").append(name);
    fail("{}: {} {} is not supported ({})", top.path(), key, type, list);
  }
  return type;
}

NormalizerOptions parse_normalizer(const Object& top) {
  if (!top.has("normalizer")) return NormalizerOptions::none();
  parse_type(top, "normalizer", {"BertNormalizer"});
  const Object normalizer = top.object("normalizer");
  NormalizerOptions options;
  options.clean_text = normalizer.need_boolean("clean_text");
  options.handle_chinese_chars = normalizer.need_boolean("handle_chinese_chars");
  options.strip_accents = normalizer.boolean("strip_accents");
  options.lowercase = normalizer.need_boolean("lowercase");
  return options;
}

TemplatePiece special_piece(const Object& processor, const std::string& name) {
  const Object special = processor.object("special_tokens").object(name.c_str());
  TemplatePiece piece;
  for (const char* key : {"ids", "tokens"})
    check(special.at(key).is_array(), "{}: {} must be a list", special.path(), special.place(key));
  for (const json& id : special.at("ids"))
    piece.ids.push_back(token_id(id, name, special.path()));
  for (const json& token : special.at("tokens")) {
    check(token.is_string(), "{}: {} must hold strings", special.path(), special.place("tokens"));
    piece.tokens.push_back(token.get<std::string>());
  }
  check(piece.ids.size() == piece.tokens.size(), "{}: {} has {} ids for {} tokens", special.path(),
        special.place("ids"), piece.ids.size(), piece.tokens.size());
  return piece;
}

std::vector<TemplatePiece> parse_template(const Object& processor, const char* key) {
  std::vector<TemplatePiece> pieces;
  for (const Object& entry : processor.objects(key)) {
    const bool is_text = entry.has("Sequence");
    const Object content = entry.object(is_text ? "Sequence" : "SpecialToken");
    const std::string id = content.need_string("id");
    TemplatePiece piece;
    if (is_text) {
      check(id == "A" || id == "B", "{}: {} is {}, must be A or B", content.path(),
            content.place("id"), id);
      piece.text = id == "A" ? 0 : 1;
    } else {
      piece = special_piece(processor, id);
    }
    piece.type_id = int32_t(content.need_count("type_id"));
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// [token, id] of BertProcessing.
TemplatePiece parse_pair(const Object& processor, const char* key) {
  const json& value = processor.at(key);
  check(value.is_array() && value.size() == 2 && value[0].is_string(),
        "{}: {} must be a token and its id", processor.path(), processor.place(key));
  const auto token = value[0].get<std::string>();
  return {-1, {token_id(value[1], token, processor.path())}, {token}, 0};
}

void parse_post_processor(const Object& top, TokenizerConfig& config,
                          std::vector<std::string>& notes) {
  TemplatePiece first, second;
  first.text = 0;
  second.text = second.type_id = 1;
  if (!top.has("post_processor")) {
    notes.push_back(
        fmt::format("{}: it has no post_processor, so no special tokens are added", top.path()));
    config.single = {first};
    config.pair = {first, second};
    return;
  }
  const auto type = parse_type(top, "post_processor", {"TemplateProcessing", "BertProcessing"});
  const Object processor = top.object("post_processor");
  if (type == "TemplateProcessing") {
    config.single = parse_template(processor, "single");
    config.pair = parse_template(processor, "pair");
  } else {
    const TemplatePiece cls = parse_pair(processor, "cls"), sep = parse_pair(processor, "sep");
    TemplatePiece last = sep;
    last.type_id = 1;
    config.single = {cls, first, sep};
    config.pair = {cls, first, sep, second, last};
  }
}

// Two entries want one id: because a piece is there twice, or by themselves.
[[noreturn]] void refuse_id(const std::vector<std::pair<std::string, int32_t>>& vocab, int32_t id,
                            const std::string& path) {
  std::unordered_set<std::string_view> pieces;
  std::string sharing;
  for (const auto& [piece, piece_id] : vocab) {
    check(pieces.insert(piece).second, "{}: model.vocab has \"{}\" twice", path, piece);
    if (piece_id == id) sharing += fmt::format("{}\"{}\"", sharing.empty() ? "" : " and ", piece);
  }
  fail("{}: tokens {} share id {}", path, sharing, id);
}

void parse_model(const Object& top, const std::vector<std::pair<std::string, int32_t>>& vocab,
                 TokenizerConfig& config) {
  const Object model = top.object("model");
  const std::string type = model.string("type").value_or("WordPiece");
  check(type == "WordPiece", "{}: model type {} is not supported (WordPiece)", top.path(), type);
  auto& options = config.wordpiece;
  options.unk_token = model.need_string("unk_token");
  options.continuing_subword_prefix = model.need_string("continuing_subword_prefix");
  options.max_input_chars_per_word = model.need_count("max_input_chars_per_word");
  check(model.has("vocab"), "{}: key model.vocab is missing", top.path());
  check(!vocab.empty(), "{}: model.vocab is empty", top.path());
  int32_t highest = 0;
  for (const auto& [piece, id] : vocab)
    highest = std::max(highest, id);
  config.pieces.resize(size_t(highest) + 1);
  for (const auto& [piece, id] : vocab) {
    std::string& slot = config.pieces[size_t(id)];
    if (!slot.empty()) refuse_id(vocab, id, top.path());
    slot = piece;
  }
}

std::optional<Side> parse_side(const Object& object, const char* key, std::string_view right,
                               std::string_view left) {
  const auto name = object.string(key);
  if (!name) return std::nullopt;
  check(*name == right || *name == left, "{}: {} is {}, must be {} or {}", object.path(),
        object.place(key), *name, right, left);
  return *name == left ? Side::left : Side::right;
}

// A name that may be a string or an added token as an object.
std::optional<std::string> parse_name(const Object& top, const char* key) {
  if (top.at(key).is_object()) return top.object(key).need_string("content");
  return top.string(key);
}

void parse_names(const Object& top, TokenizerSettings& settings) {
  const auto fill = [&](std::optional<std::string>& name, const char* key) {
    if (!name) name = parse_name(top, key);
  };
  fill(settings.unk, "unk_token");
  fill(settings.cls, "cls_token");
  fill(settings.sep, "sep_token");
  fill(settings.pad, "pad_token");
  fill(settings.mask, "mask_token");
}

}  // namespace

TokenizerConfig parse_tokenizer_json(std::string_view contents, const std::string& path,
                                     std::vector<std::string>& notes) {
  auto [rest, vocab] = split_vocab(contents, path);
  const json file = parse(rest, path);
  const Object top(file, path, "");
  constexpr std::string_view keys[] = {"version",      "truncation",     "padding",
                                       "added_tokens", "normalizer",     "pre_tokenizer",
                                       "decoder",      "post_processor", "model"};
  for (const auto& [key, value] : file.items())
    check(std::find(std::begin(keys), std::end(keys), key) != std::end(keys),
          "{}: unknown key {} at the top level", path, key);
  const std::string version = top.string("version").value_or("1.0");
  check(version == "1.0", "{}: version {} is not supported (1.0)", path, version);

  TokenizerConfig config;
  parse_model(top, vocab, config);
  config.normalizer = parse_normalizer(top);
  parse_type(top, "pre_tokenizer", {"BertPreTokenizer"});
  parse_post_processor(top, config, notes);
  if (top.has("decoder")) {
    parse_type(top, "decoder", {"WordPiece"});
    config.clean_up_tokenization_spaces = top.object("decoder").boolean("cleanup").value_or(true);
  }
  if (top.has("added_tokens")) {
    for (const Object& entry : top.objects("added_tokens")) {
      const auto id = token_id(entry.at("id"), entry.need_string("content"), path);
      config.added_tokens.push_back(parse_added_token(entry, id));
    }
  }
  if (top.has("truncation"))
    config.truncation_side =
        parse_side(top.object("truncation"), "direction", "Right", "Left").value_or(Side::right);
  if (top.has("padding"))
    config.padding_side =
        parse_side(top.object("padding"), "direction", "Right", "Left").value_or(Side::right);

  config.special.unk = config.wordpiece.unk_token;
  std::vector<std::string> around;  // the special tokens of the single template
  for (const TemplatePiece& piece : config.single)
    around.insert(around.end(), piece.tokens.begin(), piece.tokens.end());
  config.special.cls = around.empty() ? "" : around.front();
  config.special.sep = around.empty() ? "" : around.back();
  return config;
}

TokenizerSettings parse_tokenizer_config(std::string_view contents, const std::string& path) {
  const json file = parse(contents, path);
  const Object top(file, path, "");
  TokenizerSettings settings;
  settings.do_lower_case = top.boolean("do_lower_case");
  if (file.contains("strip_accents")) settings.strip_accents = top.boolean("strip_accents");
  settings.tokenize_chinese_chars = top.boolean("tokenize_chinese_chars");
  settings.clean_up_tokenization_spaces = top.boolean("clean_up_tokenization_spaces");
  settings.padding_side = parse_side(top, "padding_side", "right", "left");
  settings.truncation_side = parse_side(top, "truncation_side", "right", "left");
  settings.tokenizer_class = top.string("tokenizer_class");
  if (const json& length = top.at("model_max_length"); !length.is_null()) {
    check(length.is_number() && length.get<double>() >= 1,
          "{}: model_max_length must be a number of at least 1", path);
    if (length.get<double>() < 1e9) settings.model_max_length = length.get<int64_t>();
  }
  parse_names(top, settings);
  if (top.has("added_tokens_decoder")) {
    const Object decoder = top.object("added_tokens_decoder");
    for (const auto& [key, value] : decoder.value().items()) {
      int32_t id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      check(
          error == std::errc() && end == key.data() + key.size() && id >= 0 && id < most_token_ids,
          "{}: {} in added_tokens_decoder is not a token id", path, key);
      const Object entry = decoder.object(key.c_str());
      settings.added_tokens.push_back(parse_added_token(entry, id));
    }
  }
  return settings;
}

void parse_special_tokens_map(std::string_view contents, const std::string& path,
                              TokenizerSettings& settings) {
  const json file = parse(contents, path);
  parse_names(Object(file, path, ""), settings);
}

void parse_added_tokens(std::string_view contents, const std::string& path,
                        TokenizerSettings& settings) {
  const json file = parse(contents, path);
  const Object top(file, path, "");
  for (const auto& [content, id] : file.items()) {
    AddedToken token;
    token.content = content;
    token.id = token_id(id, content, path);
    token.special = false;
    settings.added_tokens.push_back(std::move(token));
  }
}

}  // namespace minim::text
