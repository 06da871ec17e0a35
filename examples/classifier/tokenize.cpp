#include <fstream>
#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli.h"

namespace classifier {

using namespace minim;
using nlohmann::json;

namespace {

struct TokenizeOptions {
  std::string model, file, format = "json";
  std::vector<std::string> texts;
  int64_t max_seq_length = 0;
  bool replace_invalid_utf8 = false;
};

class Printer {
 public:
  explicit Printer(const TokenizeOptions& options)
      : ids_only_(options.format == "ids"), tokenizer_([&] {
          check_model_folder(options.model);
          text::LoadedTokenizer loaded = text::load_tokenizer(options.model);
          print_notes(loaded.notes);
          return std::move(loaded.tokenizer);
        }()) {
    if (options.max_seq_length > 0) encoding_.max_length = options.max_seq_length;
    if (options.replace_invalid_utf8) encoding_.invalid_utf8 = text::InvalidUtf8::replace;
  }

  void print(const std::string& text, const std::optional<std::string>& pair) const {
    const text::Encoding e =
        pair ? tokenizer_.encode(text, *pair, encoding_) : tokenizer_.encode(text, encoding_);
    if (ids_only_) {
      fmt::print("{}\n", fmt::join(e.ids, " "));
      return;
    }
    json offsets = json::array();
    for (const text::Span& span : e.offsets)
      offsets.push_back({span.begin, span.end});
    const json object = {
        {"ids", e.ids}, {"tokens", e.tokens}, {"type_ids", e.type_ids}, {"offsets", offsets}};
    fmt::print("{}\n", object.dump(-1, ' ', false, json::error_handler_t::replace));
  }

 private:
  bool ids_only_;
  text::Tokenizer tokenizer_;
  text::EncodeOptions encoding_;
};

// A line of a .jsonl file: an object with "text" and perhaps "text_pair".
void print_json_line(const Printer& printer, const std::string& line) {
  const json object = json::parse(line, nullptr, false);
  check(object.is_object() && object.contains("text") && object["text"].is_string(),
        "is no JSON object with a string \"text\"");
  std::optional<std::string> pair;
  if (object.contains("text_pair") && !object["text_pair"].is_null()) {
    check(object["text_pair"].is_string(), "\"text_pair\" is no string");
    pair = object["text_pair"].get<std::string>();
  }
  printer.print(object["text"].get<std::string>(), pair);
}

void run(const TokenizeOptions& options) {
  const Printer printer(options);
  if (!options.texts.empty()) {
    for (const std::string& text : options.texts)
      printer.print(text, {});
    return;
  }
  std::ifstream file;
  if (!options.file.empty()) {
    file.open(options.file);
    check(file.good(), "{}: cannot be read", options.file);
  }
  const std::string name = options.file.empty() ? "standard input" : options.file;
  const bool is_json = name.ends_with(".jsonl") || name.ends_with(".json");
  std::istream& input = options.file.empty() ? std::cin : file;
  int64_t number = 0;
  for (std::string line; std::getline(input, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    try {
      if (!is_json)
        printer.print(line, {});
      else if (line.find_first_not_of(" \t") != std::string::npos)
        print_json_line(printer, line);
    } catch (const Error& error) {
      fail("{}: line {}: {}", name, number, error.what());
    }
  }
  check(!input.bad(), "{}: cannot be read", name);  // a folder, for example
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  TokenizeOptions& o = *options;
  CLI::App& verb =
      add_verb(app, "tokenize", "Prints ids, pieces and offsets of texts as JSON lines");
  verb.add_option(option("--model-name-or-path") + "," + option("--tokenizer-name"), o.model,
                  "Folder with tokenizer.json or vocab.txt")
      ->required();
  verb.add_option("file", o.file,
                  "A text file, line by line, or .jsonl with text and text_pair (default: standard "
                  "input)");
  verb.add_option("--text", o.texts, "A text; may be given several times")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->allow_extra_args(false)
      ->default_str("");
  verb.add_option("--format", o.format, "json, or ids alone")
      ->check(CLI::IsMember({"json", "ids"}));
  verb.add_option(option("--max-seq-length"), o.max_seq_length, "Tokens that are kept (0: all)")
      ->check(CLI::NonNegativeNumber);
  verb.add_flag(option("--replace-invalid-utf8"), o.replace_invalid_utf8,
                "Replace bytes that are not UTF-8 instead of refusing them");
  verb.callback([options] { run(*options); });
}

}  // namespace classifier
