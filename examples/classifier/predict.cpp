#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <numeric>
#include <poll.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "model.h"
#include "text/packing.h"
#include "text/row_reader.h"
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
  int64_t batch_size = 32, max_seq_length = 0, top_k = 0, max_predict_samples = 0;
  bool pairs = false;
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
  // With `top_k` above 0 that many classes, the most probable first, instead of all.
  Writer(const SavedClassifier& saved, const std::string& format, int64_t top_k)
      : saved_(saved),
        format_(format),
        top_k_(std::min(size_t(top_k), saved.labels.names().size())) {
    if (format == "csv") write_header();
  }

  void write(const text::Row& row, std::span<const float> logits) const {
    const std::vector<double> p = train::probabilities(logits, saved_.type);
    if (format_ == "csv")
      write_csv(row, p);
    else if (format_ == "jsonl")
      write_json(row, p);
    else
      write_text(row, p);
  }

 private:
  bool is_regression() const { return saved_.type == train::ProblemType::regression; }
  bool is_multi_label() const {
    return saved_.type == train::ProblemType::multi_label_classification;
  }
  const std::string& name_of(size_t label) const { return saved_.labels.names()[label]; }

  void write_header() const {
    fmt::print("text,{}", is_regression() ? "value" : "label");
    if (top_k_ > 0) fmt::print(",probability");
    for (size_t i = 2; i <= top_k_; ++i)
      fmt::print(",label_{},probability_{}", i, i);
    if (top_k_ == 0 && !is_regression())
      for (const std::string& name : saved_.labels.names())
        fmt::print(",{}", csv_field(name));
    fmt::print("\n");
  }

  void write_csv(const text::Row& row, const std::vector<double>& p) const {
    fmt::print("{}", csv_field(shown(row)));
    if (is_regression()) {
      fmt::print(",{:.6f}\n", p[0]);
      return;
    }
    // Nine digits, so that the sum over many classes is still 1.
    for (const size_t label : best(p))
      fmt::print(",{},{:.9f}", csv_field(name_of(label)), p[label]);
    if (top_k_ == 0) fmt::print(",{}", csv_field(answer(p)));
    if (top_k_ == 0)
      for (const double value : p)
        fmt::print(",{:.9f}", value);
    fmt::print("\n");
  }

  void write_json(const text::Row& row, const std::vector<double>& p) const {
    json object = {{"text", row.text}};
    if (row.text_pair) object["text_pair"] = *row.text_pair;
    if (is_regression()) {
      object["value"] = p[0];
    } else {
      if (is_multi_label())
        object["labels"] = answers(p);
      else
        object["label"] = answer(p);
      for (const size_t label : best(p))
        object["top_k"].push_back({{"label", name_of(label)}, {"score", p[label]}});
      for (size_t i = 0; i < p.size() && top_k_ == 0; ++i)
        object["probabilities"][name_of(i)] = p[i];
    }
    fmt::print("{}\n", json_text(object));
  }

  void write_text(const text::Row& row, const std::vector<double>& p) const {
    for (const size_t label : best(p))
      fmt::print("{}\t{:.4f}\t", name_of(label), p[label]);
    if (top_k_ == 0)
      fmt::print("{}\t{:.4f}\t", is_regression() ? "value" : answer(p),
                 *std::ranges::max_element(p));
    fmt::print("{}\n", one_line(shown(row)));
  }

  // The top_k most probable classes; of equal ones the first.
  std::vector<size_t> best(const std::vector<double>& p) const {
    std::vector<size_t> order(p.size());
    std::iota(order.begin(), order.end(), size_t(0));
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return p[a] > p[b]; });
    order.resize(top_k_);
    return order;
  }

  // The most probable class, or all classes above one half of multi-label data.
  std::string answer(const std::vector<double>& p) const {
    if (!is_multi_label()) return name_of(size_t(std::ranges::max_element(p) - p.begin()));
    return fmt::format("{}", fmt::join(answers(p), ","));
  }
  std::vector<std::string> answers(const std::vector<double>& p) const {
    std::vector<std::string> all;
    for (size_t i = 0; i < p.size(); ++i)
      if (p[i] > 0.5) all.push_back(name_of(i));
    return all;
  }

  static std::string shown(const text::Row& row) {
    return row.text_pair ? row.text + " " + *row.text_pair : row.text;
  }
  static std::string one_line(std::string text) {
    std::ranges::replace_if(
        text, [](char c) { return c == '\n' || c == '\r' || c == '\t'; }, ' ');
    return text;
  }

  const SavedClassifier& saved_;
  std::string format_;
  size_t top_k_;
};

// Makes rows of texts from the command line and standard input, which no reader has checked.
class RowMaker {
 public:
  RowMaker(std::string place, const PredictOptions& options)
      : place_(std::move(place)),
        replaces_(options.data.replace_invalid_utf8),
        pairs_(options.pairs) {}

  text::Row operator()(std::string text, int64_t line) const {
    if (replaces_) {
      text = text::replace_invalid_utf8(text);
    } else {
      const size_t bad = text::validate_utf8(text);
      check(bad == std::string::npos,
            "{}: line {}: byte {} is not UTF-8; --replace-invalid-utf8 replaces such bytes", place_,
            line, bad + 1);
    }
    if (!pairs_) return {.text = std::move(text), .line = line};
    const size_t tab = text.find('\t');
    check(tab != std::string::npos && text.find('\t', tab + 1) == std::string::npos,
          "{}: line {}: {} tabs; with --pairs it must be two texts with a tab between them", place_,
          line, std::ranges::count(text, '\t'));
    return {.text = text.substr(0, tab), .text_pair = text.substr(tab + 1), .line = line};
  }

 private:
  std::string place_;
  bool replaces_, pairs_;
};

// Lines of standard input, waiting only where none is there.
class StandardInput {
 public:
  // The next line without its end, whether that is LF or CRLF; false at the end.
  bool next(std::string& line) {
    size_t end = 0;
    while ((end = buffer_.find('\n', searched_)) == std::string::npos) {
      searched_ = buffer_.size();
      if (!read_more()) return take_rest(line);
    }
    line.assign(buffer_, begin_, end - begin_);
    begin_ = searched_ = end + 1;
    strip(line);
    return true;
  }

  // Whether next() would wait for more to be written.
  bool would_wait() const {
    if (buffer_.find('\n', searched_) != std::string::npos) return false;
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    return ::poll(&input, 1, 0) == 0;
  }

 private:
  bool read_more() {
    buffer_.erase(0, begin_);
    searched_ -= begin_;
    begin_ = 0;
    constexpr size_t most = size_t(1) << 16;
    const size_t size = buffer_.size();
    buffer_.resize(size + most);
    ssize_t got = 0;
    do {
      got = ::read(STDIN_FILENO, buffer_.data() + size, most);
    } while (got < 0 && errno == EINTR);
    check(got >= 0, "standard input: cannot be read: {}", std::strerror(errno));
    buffer_.resize(size + size_t(got));
    return got > 0;
  }
  bool take_rest(std::string& line) {
    line = buffer_.substr(begin_);
    buffer_.clear();
    begin_ = searched_ = 0;
    if (line.empty()) return false;
    strip(line);
    return true;
  }
  static void strip(std::string& line) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
  }

  std::string buffer_;
  size_t begin_ = 0;     // of the next line
  size_t searched_ = 0;  // no line ends between begin_ and here
};

// Answers the rows, whose labels, if any, do not matter.
void predict(const SavedClassifier& saved, text::Dataset& data, int64_t batch_size,
             const Writer& writer) {
  for (text::Row& row : data.rows) {
    row.label.reset();
    row.label_list.clear();
  }
  const train::EncodedDataset encoded =
      train::encode_dataset(data, saved.tokenizer, saved.max_length, saved.type, saved.labels);
  const train::Evaluator evaluator(saved.model, batch_size, nullptr);
  const Tensor logits = evaluator.predict(encoded.examples).predictions;
  const auto values = logits.values<float>();
  const auto labels = size_t(logits.size(1));
  for (size_t i = 0; i < data.rows.size(); ++i)
    writer.write(data.rows[i], values.subspan(i * labels, labels));
  std::fflush(stdout);
}

// Answers each line of standard input as it comes; lines that are there together, as those of a
// file, are a batch. An empty line gets an answer too: whoever wrote it waits for one.
void predict_lines(const SavedClassifier& saved, const PredictOptions& options,
                   const Writer& writer) {
  const RowMaker row_of("standard input", options);
  StandardInput input;
  text::Dataset lines{.file = "standard input"};
  int64_t number = 0;
  const auto answer = [&] {
    if (!lines.rows.empty()) predict(saved, lines, options.batch_size, writer);
    lines.rows.clear();
  };
  for (std::string line; input.next(line);) {
    ++number;
    if (number == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);
    try {
      lines.rows.push_back(row_of(std::move(line), number));
    } catch (const Error&) {
      answer();  // the lines before the bad one
      throw;
    }
    if (int64_t(lines.rows.size()) == options.batch_size || input.would_wait()) answer();
  }
  answer();
}

// Reads the file in parts, so that first answers come early, and memory does not grow with it.
void predict_file(const SavedClassifier& saved, const PredictOptions& options,
                  const Writer& writer) {
  text::RowReader reader(options.predict_file,
                         options.data.dataset_options(text::Role::predict, saved.type));
  text::Dataset part{.file = options.predict_file, .role = text::Role::predict};
  const auto rows = size_t(32 * std::min<int64_t>(options.batch_size, 1 << 20));
  int64_t left = options.max_predict_samples > 0 ? options.max_predict_samples
                                                 : std::numeric_limits<int64_t>::max();
  for (bool more = true; more;) {
    part.rows.clear();
    for (text::Row row; part.rows.size() < rows && (more = left > 0 && reader.next(row)); --left)
      part.rows.push_back(std::exchange(row, {}));
    if (!part.rows.empty()) predict(saved, part, options.batch_size, writer);
  }
  print_notes(reader.about().warnings);
}

void run(const PredictOptions& options) {
  const SavedClassifier saved =
      SavedClassifier::load(options.model, options.max_seq_length, choose_device(options.device));
  check_usage(options.top_k == 0 || saved.type != train::ProblemType::regression,
              "--top-k: {} predicts numbers, it has no classes", options.model);
  const Writer writer(saved, options.format, options.top_k);
  if (!options.texts.empty()) {
    text::Dataset data{.file = "--text"};
    const RowMaker row_of(data.file, options);
    for (const std::string& text : options.texts)
      data.rows.push_back(row_of(text, int64_t(data.rows.size()) + 1));
    predict(saved, data, options.batch_size, writer);
  } else if (!options.predict_file.empty()) {
    predict_file(saved, options, writer);
  } else {
    predict_lines(saved, options, writer);
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
  verb.add_option(option("--top-k"), o.top_k,
                  "That many classes with their probabilities, best first (0: the answer, and all "
                  "probabilities in csv and jsonl)")
      ->check(CLI::NonNegativeNumber);
  verb.add_flag("--pairs", o.pairs,
                "A line of standard input, or a --text, is two texts with a tab between them");
  verb.add_option(option("--max-predict-samples"), o.max_predict_samples,
                  "Only the first rows of a file (0: all)")
      ->check(CLI::NonNegativeNumber);
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
