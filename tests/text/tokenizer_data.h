#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "text/tokenizer.h"
#include "text/vocab_file.h"

// Reference data of the tokenizer tests (see tests/data/tokenizer/README.md).
namespace minim::text {

inline std::string tokenizer_data(const std::string& name) {
  return MINIM_TEST_DATA "/tokenizer/" + name;
}

// The rows of a file with one JSON object a line.
inline std::vector<nlohmann::json> json_lines(const std::string& path) {
  std::ifstream file(path);
  REQUIRE_MESSAGE(file.good(), path);
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(file, line);)
    rows.push_back(nlohmann::json::parse(line));
  return rows;
}

// bert-base-cased or bert-base-uncased.
inline const Tokenizer& bert_tokenizer(bool cased) {
  const auto load = [](const char* folder, bool lowercase) {
    const std::string path = tokenizer_data(folder) + "/vocab.txt";
    std::vector<std::string> notes;
    auto pieces = parse_vocab(read_whole_file(path), path, {}, notes);
    CHECK(notes.empty());
    return Tokenizer(TokenizerConfig::bert(std::move(pieces), lowercase));
  };
  static const Tokenizer of_cased = load("bert-base-cased", false);
  static const Tokenizer of_uncased = load("bert-base-uncased", true);
  return cased ? of_cased : of_uncased;
}

inline const Tokenizer& bert_tokenizer(const nlohmann::json& row) {
  return bert_tokenizer(row.at("vocab") == "cased");
}

}  // namespace minim::text
