#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "text/tokenizer_json.h"

namespace minim::text {
namespace {

using json = nlohmann::ordered_json;

json added_token(const AddedToken& token) {
  return {{"content", token.content},       {"single_word", token.single_word},
          {"lstrip", token.lstrip},         {"rstrip", token.rstrip},
          {"normalized", token.normalized}, {"special", token.special}};
}

json strip_accents(const NormalizerOptions& options) {
  return options.strip_accents ? json(*options.strip_accents) : json(nullptr);
}

json normalizer(const NormalizerOptions& options) {
  if (options == NormalizerOptions::none()) return nullptr;
  return {{"type", "BertNormalizer"},
          {"clean_text", options.clean_text},
          {"handle_chinese_chars", options.handle_chinese_chars},
          {"strip_accents", strip_accents(options)},
          {"lowercase", options.lowercase}};
}

// Special tokens of one template entry share a name: their text.
std::string name_of(const TemplatePiece& piece) {
  std::string name;
  for (const std::string& token : piece.tokens)
    name += token;
  return name;
}

json template_entries(const std::vector<TemplatePiece>& pieces) {
  json entries = json::array();
  for (const TemplatePiece& piece : pieces) {
    if (piece.text >= 0)
      entries.push_back(
          {{"Sequence", {{"id", piece.text == 0 ? "A" : "B"}, {"type_id", piece.type_id}}}});
    else
      entries.push_back({{"SpecialToken", {{"id", name_of(piece)}, {"type_id", piece.type_id}}}});
  }
  return entries;
}

json post_processor(const TokenizerConfig& config) {
  if (config.single.size() == 1 && config.pair.size() == 2) return nullptr;
  json specials = json::object();
  for (const auto* pieces : {&config.single, &config.pair})
    for (const TemplatePiece& piece : *pieces)
      if (piece.text < 0)
        specials[name_of(piece)] = {
            {"id", name_of(piece)}, {"ids", piece.ids}, {"tokens", piece.tokens}};
  return {{"type", "TemplateProcessing"},
          {"single", template_entries(config.single)},
          {"pair", template_entries(config.pair)},
          {"special_tokens", specials}};
}

json special_token_names(const SpecialTokenNames& names) {
  json object = json::object();
  const auto add = [&](const char* key, const std::string& name) {
    if (!name.empty()) object[key] = name;
  };
  add("unk_token", names.unk);
  add("sep_token", names.sep);
  add("pad_token", names.pad);
  add("cls_token", names.cls);
  add("mask_token", names.mask);
  return object;
}

std::string as_text(const json& value) {
  return value.dump(2) + "\n";
}

// Python's BERT classes take only the vocabulary from tokenizer.json and rebuild the rest from
// these settings; what they cannot say needs the class that follows the file.
bool is_plain_bert(const TokenizerConfig& config) {
  TokenizerConfig plain;
  try {
    plain = TokenizerConfig::bert(config.pieces, config.normalizer.lowercase, config.special);
  } catch (const std::exception&) {
    return false;
  }
  const auto& wordpiece = config.wordpiece;
  return config.normalizer.clean_text && wordpiece.continuing_subword_prefix == "##" &&
         wordpiece.max_input_chars_per_word == 100 && config.single == plain.single &&
         config.pair == plain.pair;
}

}  // namespace

std::string format_tokenizer_json(const TokenizerConfig& config) {
  json added = json::array();
  for (const AddedToken& token : config.added_tokens) {
    json entry = {{"id", token.id}};
    entry.update(added_token(token));
    added.push_back(entry);
  }
  const json head = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added},
      {"normalizer", normalizer(config.normalizer)},
      {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
      {"post_processor", post_processor(config)},
      {"decoder",
       {{"type", "WordPiece"},
        {"prefix", config.wordpiece.continuing_subword_prefix},
        {"cleanup", config.clean_up_tokenization_spaces}}},
  };
  const json model = {
      {"type", "WordPiece"},
      {"unk_token", config.wordpiece.unk_token},
      {"continuing_subword_prefix", config.wordpiece.continuing_subword_prefix},
      {"max_input_chars_per_word", config.wordpiece.max_input_chars_per_word},
  };
  // The vocabulary is written by hand: an ordered_json looks for a key's place at each insertion.
  const std::string before = head.dump(2), settings = model.dump(2);
  std::string text = before.substr(0, before.size() - 2) +
                     ",\n  \"model\": " + settings.substr(0, settings.size() - 2) +
                     ",\n  \"vocab\": {";
  const char* separator = "\n";
  for (size_t id = 0; id < config.pieces.size(); ++id) {
    if (config.pieces[id].empty()) continue;
    text += fmt::format("{}    {}: {}", separator, json(config.pieces[id]).dump(), id);
    separator = ",\n";
  }
  return text + "\n  }\n}\n}\n";
}

std::string format_tokenizer_config(const TokenizerConfig& config) {
  json decoder = json::object();
  for (const AddedToken& token : config.added_tokens)
    decoder[std::to_string(token.id)] = added_token(token);
  json object = {
      {"added_tokens_decoder", decoder},
      {"clean_up_tokenization_spaces", config.clean_up_tokenization_spaces},
      {"do_lower_case", config.normalizer.lowercase},
      {"strip_accents", strip_accents(config.normalizer)},
      {"tokenize_chinese_chars", config.normalizer.handle_chinese_chars},
      {"padding_side", name_of(config.padding_side)},
      {"truncation_side", name_of(config.truncation_side)},
      {"tokenizer_class",
       is_plain_bert(config) ? config.tokenizer_class : "PreTrainedTokenizerFast"},
  };
  if (config.model_max_length) object["model_max_length"] = *config.model_max_length;
  object.update(special_token_names(config.special));
  return as_text(object);
}

std::string format_special_tokens_map(const TokenizerConfig& config) {
  return as_text(special_token_names(config.special));
}

}  // namespace minim::text
