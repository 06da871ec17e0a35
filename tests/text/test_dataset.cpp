#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "text/dataset.h"
#include "text/labels.h"

using namespace minim;
using namespace minim::text;
using Json = nlohmann::json;

namespace {

const std::string folder = MINIM_TEST_DATA "/datasets/";

std::vector<Json> json_lines(const std::string& name) {
  std::ifstream stream(folder + name);
  std::vector<Json> lines;
  for (std::string line; std::getline(stream, line);)
    lines.push_back(Json::parse(line));
  return lines;
}

// The words of a sentence without the punctuation around them.
std::vector<std::string> words(const std::string& sentence) {
  const std::string around = "'\"();:,?";
  std::istringstream stream(sentence);
  std::vector<std::string> out;
  for (std::string word; stream >> word;) {
    const size_t first = word.find_first_not_of(around);
    if (first == word.npos) continue;
    out.push_back(word.substr(first, word.find_last_not_of(around) - first + 1));
  }
  return out;
}

// Does the message say what the reference asks for? Its wording is free, its words are not.
void check_conveys(const std::string& message, const std::string& about) {
  const std::vector<std::string> said = words(message);
  for (const std::string& word : words(about)) {
    CHECK_MESSAGE(std::count(said.begin(), said.end(), word) > 0, "'", word,
                  "' is missing in: ", message);
  }
}

void check_error(const std::string& message, const std::string& file, const Json& error) {
  INFO(message);
  CHECK(message.starts_with(file + ":"));
  for (const char* place : {"line", "field", "byte"}) {
    if (!error.contains(place)) continue;
    const std::string text = std::string(place) + " " + std::to_string(error[place].get<int>());
    const size_t at = message.find(text);
    REQUIRE(at != message.npos);
    CHECK(!std::isdigit(uint8_t(message[at + text.size()])));
  }
  check_conveys(message, error["about"]);
}

Json rows_as_json(const Dataset& data) {
  Json rows = Json::array();
  for (const Row& row : data.rows) {
    Json text = row.text;
    if (row.text_pair) text = {row.text, *row.text_pair};
    rows.push_back({text, row.label ? Json(*row.label) : Json()});
  }
  return rows;
}

// The error's text, or "" if nothing is thrown.
template <class Function>
std::string error_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string error_in(const std::string& name, const std::string& bytes,
                     const DatasetOptions& options = {}) {
  return error_of([&] { parse_dataset(name, bytes, options); });
}

}  // namespace

TEST_CASE("every reference file gives its rows, labels and warnings, or its error with the place") {
  const auto cases = json_lines("cases.jsonl");
  REQUIRE(cases.size() == 128);
  for (const Json& c : cases) {
    CAPTURE(c["id"].get<std::string>());
    const std::string path = folder + c["file"].get<std::string>();
    DatasetOptions options;
    options.role = c["role"] == "train" ? Role::train : Role::predict;
    options.text_columns = c["text_columns"].get<std::vector<std::string>>();
    options.label_column = c["label_column"];
    const Json& required = c["required"];
    try {
      Dataset data = read_dataset(path, options);
      LabelSet labels;
      if (options.role == Role::train) {
        labels = collect_labels(data, LabelOrder::numeric, data.warnings);
      }
      REQUIRE(required.contains("rows"));
      CHECK(rows_as_json(data) == required["rows"]);
      CHECK(Json(labels.names()) == required["labels"]);
      CHECK(data.warnings.size() == required.contains("warn"));
      if (required.contains("warn")) check_conveys(data.warnings.at(0), required["warn"]);
    } catch (const Error& error) {
      INFO(error.what());
      REQUIRE(required.contains("error"));
      check_error(error.what(), path, required["error"]);
    }
  }
}

TEST_CASE("an evaluation file is mapped by the training file's classes") {
  const auto cases = json_lines("train_eval.jsonl");
  REQUIRE(cases.size() == 9);
  for (const Json& c : cases) {
    CAPTURE(c["id"].get<std::string>());
    const Json& required = c["required"];
    Dataset train = parse_dataset("train.csv", c["train"]);
    const LabelSet labels = collect_labels(train, LabelOrder::numeric, train.warnings);
    try {
      const Dataset eval = parse_dataset("eval.csv", c["eval"], {.role = Role::evaluate});
      const std::vector<int64_t> ids = label_ids(eval, labels);
      REQUIRE(required.contains("eval"));
      CHECK(Json(labels.names()) == required["labels"]);
      CHECK(rows_as_json(eval) == required["eval"]);
      for (size_t i = 0; i < ids.size(); ++i) {
        CHECK(labels.names()[size_t(ids[i])] == eval.rows[i].label);
      }
      if (required.contains("eval_ids")) CHECK(Json(ids) == required["eval_ids"]);
    } catch (const Error& error) {
      INFO(error.what());
      REQUIRE(required.contains("error"));
      check_error(error.what(), "eval.csv", required["error"]);
    }
  }
}

TEST_CASE("errors about files are sentences with a place and a way out") {
  CHECK(
      error_in("a.csv", "text,label\ngood film,pos\nbad, film,neg\n") ==
      "a.csv: line 3: 3 fields, header has 2 (a comma inside a text needs quotes around the text): "
      "bad, film,neg");
  CHECK(error_in("a.csv", "text,label\nx,pos\n\"a\nb\",neg\ny,\"open\n") ==
        "a.csv: line 5, field 2: a quote is opened and never closed: \"open");
  CHECK(
      error_in("a.csv", "sentence,labels\nx,1\n",
               {.text_columns = {"sentence"}, .label_column = "label"}) ==
      "a.csv: line 1: no column 'label'; did you mean 'labels'?; the columns are 'sentence', "
      "'labels'; name it with --label-column-name, or give --column-names if the first line looks "
      "like data");
  CHECK(
      error_in("a.csv", "premise,hypothesis,label\nx,y,1\n") ==
      "a.csv: line 1: no column 'text'; the columns are 'premise', 'hypothesis', 'label'; name it "
      "with --text-column-names, or give --column-names if the first line looks like data");
  CHECK(
      error_in("a.csv", "text,label\ncaf\xE9,1\n") ==
      "a.csv: line 2, field 1: byte 14 (0xE9) is not valid UTF-8; convert the file (from Latin-1?) "
      "or replace such bytes with --replace-invalid-utf8");
  CHECK(error_in("a.csv", "text,label\nx,\n") ==
        "a.csv: line 2, field 2: label is empty, must be in every row");
  CHECK(error_in("a.csv", "text,text,label\nx,y,1\n") ==
        "a.csv: line 1: column 'text' appears twice, must be unique to be read");
  CHECK(error_in("a.jsonl", "{\"text\": \"x\", \"label\": [1]}") ==
        "a.jsonl: line 1: label is a list (multi-label), must be one value; see --problem-type");
  CHECK(error_in("a.jsonl", "{\"text\": \"x\", \"label\": 1}\n[2]") ==
        "a.jsonl: line 2: not an object, must be {\"text\": ..., \"label\": ...}: [2]");
  CHECK(
      error_in("a.parquet", "") ==
      "a.parquet: extension '.parquet' names no format, must be .csv, .tsv, .json, .jsonl or .txt; "
      "or set one with --file-format");
  CHECK(error_in("a.txt", "x\n") ==
        "a.txt: a plain text file has no labels, must be used for prediction only");
  CHECK(error_of([] { read_dataset("/nowhere/a.csv"); }) == "/nowhere/a.csv: no such file");
}

TEST_CASE("columns are found by their usual names or as the only ones left") {
  const auto columns = [](const std::string& header, Role role = Role::train) {
    std::string row = "x";
    for (char c : header)
      row += c == ',' ? ",y" : "";
    const Dataset data = parse_dataset("a.csv", header + "\n" + row, {.role = role});
    return data.text_columns.at(0) + " " + data.label_column;
  };
  CHECK(columns("text,category") == "text category");
  CHECK(columns("label,text") == "text label");
  CHECK(columns("idx,sentence,label") == "sentence label");
  CHECK(columns("text,stars") == "text stars");
  CHECK(columns("text,label,source,intent") == "text label");
  CHECK(columns("id,utterance", Role::predict) == "utterance ");
  CHECK(columns("text,label,source", Role::predict) == "text label");
}

TEST_CASE("a file without a header is read under given names") {
  const DatasetOptions options{.format = FileFormat::tsv, .column_names = {"label", "text"}};
  const Dataset data = parse_dataset("SMS", "ham\tgo \"on\"\r\nspam\tfree\r\n", options);
  CHECK(rows_as_json(data) == Json::parse(R"([["go \"on\"", "ham"], ["free", "spam"]])"));
  CHECK(data.label_field == 1);
}

TEST_CASE("plain text is one row per line, empty lines included") {
  const Dataset data =
      parse_dataset("a.txt", "\xEF\xBB\xBFone\r\n\ntwo, \"three\"", {.role = Role::predict});
  CHECK(rows_as_json(data) ==
        Json::parse(R"([["one", null], ["", null], ["two, \"three\"", null]])"));
  CHECK(data.rows[2].line == 3);
  CHECK(data.warnings == std::vector<std::string>{"a.txt: 1 empty text (line 2)"});
}

TEST_CASE("ill-formed bytes are replaced on request, with a warning that counts them") {
  const Dataset data =
      parse_dataset("a.csv", "text,label\ncaf\xE9,a\n\xFF\xFE,b\n", {.replace_invalid_utf8 = true});
  CHECK(data.rows[0].text == "caf\xEF\xBF\xBD");
  CHECK(data.rows[1].text == "\xEF\xBF\xBD\xEF\xBF\xBD");
  CHECK(data.warnings ==
        std::vector<std::string>{"a.csv: 3 ill-formed byte sequences replaced by U+FFFD"});
}

TEST_CASE("rows know the line they start on, whatever the line ends and quotes") {
  const Dataset data =
      parse_dataset("a.csv", "\r\ntext,label\r\n\"a\r\nb\",1\r\n\r\n\"c\"\"\n\rd\",2\ne,3\r\rf,4");
  std::vector<int64_t> lines;
  for (const Row& row : data.rows)
    lines.push_back(row.line);
  CHECK(lines == std::vector<int64_t>{3, 6, 9, 11});
}
