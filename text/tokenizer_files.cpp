#include "text/tokenizer_files.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include <fmt/core.h>

#include "core/error.h"
#include "core/file.h"
#include "text/tokenizer_json.h"
#include "text/vocab_file.h"

namespace minim::text {
namespace {

struct Folder {
  std::string path;

  std::string file(const char* name) const { return (std::filesystem::path(path) / name).string(); }
  bool has(const char* name) const {
    std::error_code error;
    return std::filesystem::exists(file(name), error);
  }
};

TokenizerSettings read_settings(const Folder& folder) {
  TokenizerSettings settings;
  if (const auto path = folder.file("tokenizer_config.json"); folder.has("tokenizer_config.json"))
    settings = parse_tokenizer_config(read_whole_file(path), path);
  if (const auto path = folder.file("special_tokens_map.json");
      folder.has("special_tokens_map.json"))
    parse_special_tokens_map(read_whole_file(path), path, settings);
  if (const auto path = folder.file("added_tokens.json"); folder.has("added_tokens.json"))
    parse_added_tokens(read_whole_file(path), path, settings);
  return settings;
}

// Python classes whose tokenizer is BERT's, without "Fast" at the end.
void check_class(const Folder& folder, const TokenizerSettings& settings, bool has_json) {
  if (!settings.tokenizer_class) return;
  std::string name = *settings.tokenizer_class;
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  constexpr std::string_view bert[] = {"BertTokenizer",     "DistilBertTokenizer",
                                       "ElectraTokenizer",  "MobileBertTokenizer",
                                       "ConvBertTokenizer", "SqueezeBertTokenizer"};
  // These two follow whatever tokenizer.json says.
  const bool generic = name == "PreTrainedTokenizer" || name == "TokenizersBackend";
  check(
      std::find(std::begin(bert), std::end(bert), name) != std::end(bert) || (generic && has_json),
      "{}: tokenizer_class {} is not supported (BertTokenizer or DistilBertTokenizer)",
      folder.file("tokenizer_config.json"), *settings.tokenizer_class);
}

SpecialTokenNames special_names(const TokenizerSettings& settings, SpecialTokenNames names) {
  const auto set = [](std::string& name, const std::optional<std::string>& given) {
    if (given) name = *given;
  };
  set(names.unk, settings.unk);
  set(names.cls, settings.cls);
  set(names.sep, settings.sep);
  set(names.pad, settings.pad);
  set(names.mask, settings.mask);
  return names;
}

TokenizerConfig read_vocab(const Folder& folder, const TokenizerSettings& settings,
                           std::vector<std::string>& notes) {
  const std::string path = folder.file("vocab.txt");
  const SpecialTokenNames special = special_names(settings, {});
  auto pieces =
      parse_vocab(read_whole_file(path), path,
                  {special.unk, special.cls, special.sep, special.pad, special.mask}, notes);
  bool lowercase = settings.do_lower_case.value_or(true);
  if (!settings.do_lower_case) {
    lowercase = !has_cased_pieces(pieces);
    notes.push_back(fmt::format(
        "{}: do_lower_case is not given; the vocabulary has {}cased pieces, so {}", path,
        lowercase ? "no " : "", lowercase ? "text is lower-cased" : "case is kept"));
  }
  for (const std::string& name : {special.pad, special.mask})
    if (std::find(pieces.begin(), pieces.end(), name) == pieces.end())
      notes.push_back(
          fmt::format("{}: the vocabulary has no {}, so there is no such token", path, name));
  return TokenizerConfig::bert(std::move(pieces), lowercase, special, path);
}

// Says so when vocab.txt lies beside a tokenizer.json that has other pieces.
void compare_vocab(const Folder& folder, const TokenizerConfig& config,
                   std::vector<std::string>& notes) {
  const std::string path = folder.file("vocab.txt");
  std::vector<std::string> ignored;
  bool same = false;
  try {
    same = parse_vocab(read_whole_file(path), path, {}, ignored) == config.pieces;
  } catch (const Error& error) {
    notes.push_back(fmt::format("{} (not used: tokenizer.json counts)", error.what()));
    return;
  }
  if (!same) notes.push_back(fmt::format("{}: it differs from tokenizer.json, which counts", path));
}

// The flags of an added token come from tokenizer.json where that exists; an id that contradicts is
// left for Tokenizer to refuse.
void apply(const TokenizerSettings& settings, bool has_json, TokenizerConfig& config) {
  auto& normalizer = config.normalizer;
  if (settings.do_lower_case) normalizer.lowercase = *settings.do_lower_case;
  if (settings.strip_accents) normalizer.strip_accents = *settings.strip_accents;
  if (settings.tokenize_chinese_chars)
    normalizer.handle_chinese_chars = *settings.tokenize_chinese_chars;
  if (settings.clean_up_tokenization_spaces.value_or(false))
    config.clean_up_tokenization_spaces = true;
  if (settings.padding_side) config.padding_side = *settings.padding_side;
  if (settings.truncation_side) config.truncation_side = *settings.truncation_side;
  if (settings.tokenizer_class) config.tokenizer_class = *settings.tokenizer_class;
  config.model_max_length = settings.model_max_length;
  config.special = special_names(settings, config.special);
  for (const AddedToken& token : settings.added_tokens) {
    const auto same = [&](const AddedToken& known) { return known.content == token.content; };
    const auto known = std::find_if(config.added_tokens.begin(), config.added_tokens.end(), same);
    if (known == config.added_tokens.end())
      config.added_tokens.push_back(token);
    else if (has_json)
      known->id = token.id;
    else
      *known = token;
  }
}

}  // namespace

LoadedTokenizer load_tokenizer(const std::string& folder_path) {
  const Folder folder{folder_path};
  const bool has_json = folder.has("tokenizer.json");
  check(has_json || folder.has("vocab.txt"), "{}: no vocab.txt or tokenizer.json in the folder",
        folder_path);
  const TokenizerSettings settings = read_settings(folder);
  check_class(folder, settings, has_json);
  std::vector<std::string> notes;
  TokenizerConfig config;
  if (has_json) {
    const std::string path = folder.file("tokenizer.json");
    config = parse_tokenizer_json(read_whole_file(path), path, notes);
    if (folder.has("vocab.txt")) compare_vocab(folder, config, notes);
  } else {
    config = read_vocab(folder, settings, notes);
  }
  apply(settings, has_json, config);
  const std::string path = folder.file(has_json ? "tokenizer.json" : "vocab.txt");
  return {Tokenizer(std::move(config), path), std::move(notes)};
}

void save_tokenizer(const Tokenizer& tokenizer, const std::string& folder_path) {
  const Folder folder{folder_path};
  const TokenizerConfig& config = tokenizer.config();
  write_whole_file(folder.file("vocab.txt"), format_vocab(config.pieces));
  write_whole_file(folder.file("tokenizer.json"), format_tokenizer_json(config));
  write_whole_file(folder.file("tokenizer_config.json"), format_tokenizer_config(config));
  write_whole_file(folder.file("special_tokens_map.json"), format_special_tokens_map(config));
}

}  // namespace minim::text
