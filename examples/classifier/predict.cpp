#include <algorithm>
#include <iostream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "model.h"
#include "text/packing.h"
#include "text/utf8.h"
#include "train/evaluator.h"

namespace classifier {

using namespace minim;
using nlohmann::json;

namespace {

struct PredictOptions {
  DataOptions data;
  std::string model, predict_file, format = "text", device = "auto";
  std::vector<std::string> texts;
  int64_t batch_size = 32, max_seq_length = 0;
};

std::string csv_field(const std::string& field) {
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string quoted = "\"";
  for (char c : field)
    quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string json_text(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Writes predictions in one of the three formats.
class Writer {
 public:
  Writer(const SavedClassifier& saved, const std::string& format) : saved_(saved), format_(format) {
    if (format != "csv") return;
    fmt::print("text,{}", is_regression() ? "value" : "label");
    if (!is_regression())
      for (const std::string& name : saved.labels.names())
        fmt::print(",{}", csv_field(name));
    fmt::print("\n");
  }

  void write(const text::Row& row, std::span<const float> logits) const {
    const std::vector<double> p = train::probabilities(logits, saved_.type);
    const std::string shown = row.text_pair ? row.text + " " + *row.text_pair : row.text;
    if (format_ == "csv") {
      fmt::print("{},{}", csv_field(shown),
                 is_regression() ? fmt::format("{:.6f}", p[0]) : csv_field(answer(p)));
      if (!is_regression())
        for (double value : p)
          fmt::print(",{:.6f}", value);
      fmt::print("\n");
    } else if (format_ == "jsonl") {
      json object = {{"text", row.text}};
      if (row.text_pair) object["text_pair"] = *row.text_pair;
      if (is_regression()) {
        object["value"] = p[0];
      } else {
        if (saved_.type == train::ProblemType::multi_label_classification)
          object["labels"] = answers(p);
        else
          object["label"] = answer(p);
        for (size_t i = 0; i < p.size(); ++i)
          object["probabilities"][saved_.labels.names()[i]] = p[i];
      }
      fmt::print("{}\n", json_text(object));
    } else {
      const double best = *std::ranges::max_element(p);
      fmt::print("{}\t{:.4f}\t{}\n", is_regression() ? "value" : answer(p), best, one_line(shown));
    }
  }

 private:
  bool is_regression() const { return saved_.type == train::ProblemType::regression; }

  // The most probable class, or all classes above one half of multi-label data.
  std::string answer(const std::vector<double>& p) const {
    const std::vector<std::string>& names = saved_.labels.names();
    if (saved_.type != train::ProblemType::multi_label_classification)
      return names[size_t(std::ranges::max_element(p) - p.begin())];
    return fmt::format("{}", fmt::join(answers(p), ","));
  }
  std::vector<std::string> answers(const std::vector<double>& p) const {
    std::vector<std::string> all;
    for (size_t i = 0; i < p.size(); ++i)
      if (p[i] > 0.5) all.push_back(saved_.labels.names()[i]);
    return all;
  }

  static std::string one_line(std::string text) {
    std::ranges::replace_if(
        text, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
    return text;
  }

  const SavedClassifier& saved_;
  std::string format_;
};

// Texts from the command line and standard input, which no reader has checked.
text::Row checked_row(const std::string& text, const std::string& place, int64_t line,
                      bool replace_invalid_utf8) {
  if (replace_invalid_utf8) return {.text = text::replace_invalid_utf8(text), .line = line};
  const size_t bad = text::validate_utf8(text);
  check(bad == std::string::npos,
        "{}: line {}: byte {} is not UTF-8; --replace-invalid-utf8 replaces such bytes", place,
        line, bad + 1);
  return {.text = text, .line = line};
}

void predict(const SavedClassifier& saved, const text::Dataset& data, int64_t batch_size,
             const Writer& writer) {
  text::Dataset unlabelled = data;
  for (text::Row& row : unlabelled.rows)
    row.label.reset();
  const train::EncodedDataset encoded = train::encode_dataset(
      unlabelled, saved.tokenizer, saved.max_length, saved.type, saved.labels);
  const train::Evaluator evaluator(saved.model, batch_size, nullptr);
  const Tensor logits = evaluator.predict(encoded.examples).predictions;
  const auto values = logits.values<float>();
  const auto labels = size_t(logits.size(1));
  for (size_t i = 0; i < data.rows.size(); ++i)
    writer.write(data.rows[i], values.subspan(i * labels, labels));
  std::fflush(stdout);
}

// Answers each line of standard input as it comes.
void predict_lines(const SavedClassifier& saved, const Writer& writer, bool replace_invalid_utf8) {
  int64_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    text::Dataset one;
    one.file = "standard input";
    one.rows = {checked_row(line, one.file, number, replace_invalid_utf8)};
    predict(saved, one, 1, writer);
  }
}

void run(const PredictOptions& options) {
  const SavedClassifier saved =
      SavedClassifier::load(options.model, options.max_seq_length, choose_device(options.device));
  const Writer writer(saved, options.format);
  if (!options.texts.empty()) {
    text::Dataset data;
    data.file = "--text";
    for (const std::string& text : options.texts)
      data.rows.push_back(checked_row(text, data.file, int64_t(data.rows.size()) + 1,
                                      options.data.replace_invalid_utf8));
    predict(saved, data, options.batch_size, writer);
  } else if (!options.predict_file.empty()) {
    predict(saved, options.data.read(options.predict_file, text::Role::predict, saved.type),
            options.batch_size, writer);
  } else {
    predict_lines(saved, writer, options.data.replace_invalid_utf8);
  }
}

}  // namespace

void add_predict(CLI::App& app) {
  auto options = std::make_shared<PredictOptions>();
  PredictOptions& o = *options;
  CLI::App& verb = add_verb(
      app, "predict", "Labels texts: of a file, of --text, or line by line from standard input");
  verb.add_option(option("--model-name-or-path"), o.model, "Folder of a trained model")->required();
  verb.add_option(option("--predict-file") + "," + option("--test-file"), o.predict_file,
                  "CSV, TSV, JSON lines, or .txt with one text per line");
  verb.add_option("--text", o.texts, "A text; may be given several times")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->allow_extra_args(false)
      ->default_str("");
  verb.add_option("--format", o.format,
                  "text (label, probability, text), csv or jsonl (with all probabilities)")
      ->check(CLI::IsMember({"text", "csv", "jsonl"}));
  o.data.add_to(verb);
  verb.add_option(option("--max-seq-length"), o.max_seq_length,
                  "Tokens that are kept of a text (0: as many as the model has positions)")
      ->check(CLI::NonNegativeNumber);
  verb.add_option(option("--per-device-eval-batch-size"), o.batch_size, "Rows of a batch")
      ->check(CLI::PositiveNumber);
  add_device_option(verb, o.device);
  verb.callback([options] { run(*options); });
}

}  // namespace classifier
