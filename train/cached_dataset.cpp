#include "train/cached_dataset.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "text/row_reader.h"
#include "text/tokenizer_json.h"

namespace minim::train {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

text::ContentHash hash_of_file(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::error_code none;
  check(stream.is_open(), "{}: {}", path,
        fs::exists(path, none) ? "cannot be opened" : "no such file");
  text::ContentHasher hasher;
  std::vector<char> buffer(size_t(1) << 20);
  while (stream.read(buffer.data(), std::streamsize(buffer.size())) || stream.gcount() > 0)
    hasher.add(buffer.data(), size_t(stream.gcount()));
  check(stream.eof(), "{}: cannot be read", path);
  return hasher.finish();
}

// All that the tokens, the labels and the notes depend on.
text::ContentHash key_of(const std::string& path, const text::DatasetOptions& options,
                         const text::Tokenizer& tokenizer, int64_t max_length) {
  const json key = {
      {"version", text::token_file_version},
      {"contents", hash_of_file(path).hex()},
      {"extension", fs::path(path).extension().string()},
      {"format", int(options.format)},
      {"role", int(options.role)},
      {"text_columns", options.text_columns},
      {"label_column", options.label_column},
      {"column_names", options.column_names},
      {"multi_label", options.multi_label},
      {"replace_invalid_utf8", options.replace_invalid_utf8},
      {"max_length", max_length},
      {"truncation_side", int(tokenizer.config().truncation_side)},
      {"tokenizer", text::format_tokenizer_json(tokenizer.config())},
  };
  text::ContentHasher hasher;
  hasher.add(key.dump(-1, ' ', true, json::error_handler_t::replace));
  return hasher.finish();
}

// What tells one label, or list of labels, from all others.
std::string identity(const text::Row& row) {
  if (row.label) return "=" + *row.label;
  std::string all;
  for (const std::string& label : row.label_list)
    all += fmt::format("{}:{}", label.size(), label);
  return all;
}

json to_json(const text::Row& row) {
  json entry = {{"line", row.line}};
  if (row.label)
    entry["label"] = *row.label;
  else
    entry["labels"] = row.label_list;
  return entry;
}

text::Row to_row(const json& entry) {
  text::Row row{.line = entry.at("line").get<int64_t>()};
  if (entry.contains("label"))
    row.label = entry["label"].get<std::string>();
  else
    row.label_list = entry.at("labels").get<std::vector<std::string>>();
  return row;
}

// Reads the text and writes its tokens.
void tokenize(const std::string& path, const text::DatasetOptions& options,
              const text::Tokenizer& tokenizer, int64_t max_length, const std::string& target,
              text::ContentHash key) {
  text::RowReader reader(path, options);
  text::TokenFileWriter writer(target, key);
  std::unordered_map<std::string, uint32_t> numbers;
  json labels = json::array();
  text::TokenSequence sequence;
  for (text::Row row; reader.next(row);) {
    const int64_t cut = encode_row(row, path, tokenizer, max_length, sequence);
    const auto [number, is_new] = numbers.emplace(identity(row), uint32_t(numbers.size()));
    check(numbers.size() <= ~uint32_t(0), "{}: more than 2^32 - 1 distinct labels", path);
    if (is_new) labels.push_back(to_json(row));
    writer.add(sequence, number->second, cut > 0);
  }
  const text::Dataset& about = reader.about();
  std::vector<std::string> warnings;  // the file may have another name next time
  for (const std::string& warning : about.warnings)
    warnings.push_back(warning.starts_with(path) ? warning.substr(path.size()) : warning);
  const json notes = {{"labels", labels},
                      {"warnings", warnings},
                      {"text_columns", about.text_columns},
                      {"label_column", about.label_column},
                      {"label_field", about.label_field}};
  writer.commit(notes.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

CachedDataset::CachedDataset(const std::string& path, const text::DatasetOptions& options,
                             const text::Tokenizer& tokenizer, int64_t max_length,
                             const TokenCache& cache) {
  check(options.role != text::Role::predict, "{}: only labelled data are cached", path);
  check(path != "-", "standard input: cannot be cached; name a file, or leave the cache out");
  std::error_code error;
  check(fs::is_regular_file(path, error) || !fs::exists(path, error),
        "{}: is no regular file, cannot be cached", path);
  labelled_ = {.file = path, .role = options.role};
  const text::ContentHash key = key_of(path, options, tokenizer, max_length);
  fs::create_directories(cache.folder, error);
  check(!error, "{}: cannot be made: {}", cache.folder, error.message());
  const fs::path name = fs::path(path).stem().string() + "-" + key.hex() + ".tokens";
  const std::string target = (fs::path(cache.folder) / name).string();
  if (!cache.overwrite && fs::exists(target)) {
    try {
      tokens_ = std::make_shared<const text::TokenFile>(target, key);
      read_notes();
      origin_ = fmt::format("{}: tokens are taken from {}", path, target);
    } catch (const Error& reason) {
      why_not_ = fmt::format("{}; {} is tokenized again", reason.what(), path);
      tokens_ = nullptr;
    }
  }
  if (!tokens_) {
    tokenize(path, options, tokenizer, max_length, target, key);
    // The text may have been written to meanwhile; then the tokens are those of no text at all.
    if (key_of(path, options, tokenizer, max_length) != key) {
      fs::remove(target, error);
      fail("{}: changed while it was tokenized", path);
    }
    tokens_ = std::make_shared<const text::TokenFile>(target, key);
    read_notes();
    origin_ = fmt::format("{}: tokens are kept in {}", path, target);
  }
  std::vector<int64_t> all(static_cast<size_t>(tokens_->size()));
  std::iota(all.begin(), all.end(), 0);
  choose(std::move(all));
}

void CachedDataset::read_notes() {
  distinct_.clear();
  try {
    const json notes = json::parse(tokens_->notes());
    for (const json& entry : notes.at("labels"))
      distinct_.push_back(to_row(entry));
    labelled_.warnings.clear();
    for (const json& warning : notes.at("warnings"))
      labelled_.warnings.push_back(labelled_.file + warning.get<std::string>());
    notes.at("text_columns").get_to(labelled_.text_columns);
    notes.at("label_column").get_to(labelled_.label_column);
    notes.at("label_field").get_to(labelled_.label_field);
  } catch (const json::exception& error) {
    fail("{}: its notes cannot be read ({})", labelled_.file, error.what());
  }
}

void CachedDataset::choose(std::vector<int64_t> rows) {
  rows_ = std::move(rows);
  for (text::Row& row : distinct_)
    row.times = 0;
  for (const int64_t row : rows_)
    ++distinct_.at(tokens_->label(row)).times;
  labelled_.rows.clear();
  std::ranges::copy_if(distinct_, std::back_inserter(labelled_.rows),
                       [](const text::Row& row) { return row.times > 0; });
}

EncodedDataset CachedDataset::encode(ProblemType type, const text::LabelSet& labels) {
  const memory::Scope scope(memory::Category::data);
  // Where each label of the file is among those that are left.
  std::unordered_map<std::string, int64_t> left;
  for (const text::Row& row : labelled_.rows)
    left.emplace(identity(row), int64_t(left.size()));
  std::vector<int64_t> places;
  for (const text::Row& row : distinct_) {
    const auto found = left.find(identity(row));
    places.push_back(found == left.end() ? -1 : found->second);
  }
  const auto place = [&](int64_t row) { return places[tokens_->label(row)]; };
  std::erase_if(rows_, [&](int64_t row) { return place(row) < 0; });

  EncodedDataset encoded;
  std::vector<int64_t> label_of(rows_.size());
  for (size_t i = 0; i < rows_.size(); ++i) {
    label_of[i] = place(rows_[i]);
    encoded.truncated_rows += tokens_->was_cut(rows_[i]);
  }
  encoded.examples.labels = text::select_labels(label_tensor(labelled_, type, labels), label_of);
  encoded.examples.sequences = text::Sequences(tokens_, rows_);
  return encoded;
}

}  // namespace minim::train
