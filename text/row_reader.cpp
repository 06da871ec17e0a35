#include "text/row_reader.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "text/csv.h"
#include "text/json_rows.h"

namespace minim::text {
namespace {

FileFormat format_of(const std::string& name, const DatasetOptions& options) {
  if (options.format != FileFormat::by_extension) return options.format;
  const std::string extension = std::filesystem::path(name).extension().string();
  if (extension == ".csv") return FileFormat::csv;
  if (extension == ".tsv") return FileFormat::tsv;
  if (extension == ".json" || extension == ".jsonl" || extension == ".ndjson") {
    return FileFormat::json;
  }
  if (extension == ".txt" || name == "-") return FileFormat::text;
  fail(
      "{}: extension '{}' names no format, must be .csv, .tsv, .json, .jsonl or .txt; or set one "
      "with --file-format",
      name, extension);
}

std::string_view plural(size_t count) {
  return count == 1 ? "" : "s";
}

}  // namespace

// Turns the records of one file into rows.
class RowReader::Source {
 public:
  Source(TextFile file, FileFormat format, DatasetOptions options,
         std::vector<std::string> warnings)
      : file_(std::move(file)), format_(format), options_(std::move(options)) {
    about_ = {.file = file_.name, .role = options_.role, .warnings = std::move(warnings)};
    switch (format_) {
      case FileFormat::csv:
        begin_delimited(',', true);
        break;
      case FileFormat::tsv:
        begin_delimited('\t', false);
        break;
      case FileFormat::text:
        check(options_.role == Role::predict,
              "{}: a plain text file has no labels, must be used for "
              "prediction only",
              file_.name);
        about_.text_columns = {"text"};
        break;
      default:
        check(options_.column_names.empty(), "{}: --column-names is for files without keys",
              file_.name);
        json_.emplace(file_);
    }
  }

  bool next(Row& row) {
    if (is_done_) return false;
    row = {};
    is_done_ = !(csv_ ? next_delimited(row) : json_ ? next_json(row) : next_line(row));
    if (is_done_) {
      finish();
      return false;
    }
    ++rows_;
    if (row.text.empty() || (row.text_pair && row.text_pair->empty())) {
      if (empty_++ == 0) first_empty_ = row.line;
    }
    const size_t at = csv_ ? csv_->offset() : json_ ? json_->offset() : at_;
    if (at >= released_ + release_window) release_pages(file_, released_ = at);
    return true;
  }

  const Dataset& about() const { return about_; }

 private:
  void begin_delimited(char delimiter, bool quoting) {
    check(!options_.multi_label, "{}: lists of labels need a JSON file", file_.name);
    delimiter_ = delimiter;
    csv_.emplace(file_, delimiter, quoting);
    if (options_.column_names.empty()) {
      check(csv_->next(record_), "{}: file is empty", file_.name);
      choose({file_.name, record_.line, "column", record_.fields});
    } else {
      choose({file_.name, 1, "column", options_.column_names});
    }
    if (columns_.label) about_.label_field = int64_t(*columns_.label) + 1;
  }

  bool next_delimited(Row& row) {
    if (!csv_->next(record_)) return false;
    if (record_.fields.size() != names_.size()) fail_width(record_, names_.size(), delimiter_);
    row.line = record_.line;
    row.text = std::move(record_.fields[columns_.text[0]]);
    if (columns_.text.size() == 2) row.text_pair = std::move(record_.fields[columns_.text[1]]);
    if (columns_.label) set_label(row, std::move(record_.fields[*columns_.label]));
    return true;
  }

  bool next_json(Row& row) {
    JsonRecord record;
    if (!json_->next(record)) return false;
    if (names_.empty()) {
      Header header{file_.name, record.line, "key", {}};
      for (const JsonField& field : record.fields)
        header.names.push_back(field.key);
      choose(header);
    }
    row.line = record.line;
    row.text = json_text(record, about_.text_columns[0]);
    if (columns_.text.size() == 2) row.text_pair = json_text(record, about_.text_columns[1]);
    set_json_label(row, record);
    return true;
  }

  bool next_line(Row& row) {
    const std::string_view bytes = file_.bytes;
    at_ = std::max(at_, file_.begin);
    if (at_ >= bytes.size()) return false;
    const size_t end = std::min(bytes.find_first_of("\r\n", at_), bytes.size());
    row.line = ++line_;
    if (file_.bad < end) fail_bad_byte(file_, row.line, 0);
    // Empty lines stay rows, so that predictions come line by line.
    row.text = bytes.substr(at_, end - at_);
    at_ = end + (bytes.substr(end, 2) == "\r\n" ? 2 : 1);
    return true;
  }

  void finish() {
    check(rows_ > 0, "{}: {}", file_.name,
          file_.begin == file_.bytes.size() ? "file is empty" : "no rows");
    if (empty_ > 0) {
      about_.warnings.push_back(fmt::format("{}: {} empty text{} ({}line {})", file_.name, empty_,
                                            plural(empty_), empty_ > 1 ? "first in " : "",
                                            first_empty_));
    }
  }

  void choose(const Header& header) {
    columns_ = find_columns(header, options_.text_columns, options_.label_column, options_.role,
                            about_.warnings);
    names_ = header.names;
    for (size_t column : columns_.text)
      about_.text_columns.push_back(names_[column]);
    if (columns_.label) {
      about_.label_column = names_[*columns_.label];
    } else if (header.noun == "key") {
      about_.label_column = options_.label_column;  // later rows may have it
    }
  }

  [[noreturn]] void fail_width(const CsvRecord& record, size_t width, char delimiter) const {
    const size_t count = record.fields.size();
    const char* hint = "";
    if (count > width) {
      hint = delimiter == ',' ? " (a comma inside a text needs quotes around the text)"
                              : " (a text in a .tsv file cannot hold a tab)";
    }
    fail("{}: line {}: {} field{}, {} has {}{}: {}", file_.name, record.line, count, plural(count),
         options_.column_names.empty() ? "header" : "--column-names", width, hint,
         excerpt(file_.bytes.substr(record.begin)));
  }

  void set_label(Row& row, std::string label) const {
    if (label.empty()) {
      if (options_.role == Role::predict) return;
      fail("{}: label is empty, must be in every row", label_place(about_, row));
    }
    row.label = std::move(label);
  }

  std::string json_text(JsonRecord& record, const std::string& name) const {
    const JsonField& field = json_field(record, name);
    check(field.kind == JsonField::Kind::string, "{}: line {}: {} is {}{}, must be a string",
          file_.name, record.line, name,
          field.kind == JsonField::Kind::null ? "" : "not a string but ", name_of(field.kind));
    return field.text;
  }

  const JsonField& json_field(const JsonRecord& record, const std::string& name) const {
    const JsonField* field = record.find(name);
    if (!field) {
      std::vector<std::string> keys;
      for (const JsonField& other : record.fields)
        keys.push_back(other.key);
      fail("{}: line {}: no key '{}'{}", file_.name, record.line, name, did_you_mean(name, keys));
    }
    return *field;
  }

  void set_json_label(Row& row, const JsonRecord& record) const {
    using Kind = JsonField::Kind;
    const std::string& name = about_.label_column;
    const bool optional = options_.role == Role::predict;
    if (optional && (name.empty() || !record.find(name))) return;
    const JsonField& field = json_field(record, name);
    const auto refuse = [&](std::string_view must) {
      fail("{}: line {}: {} is {}{}", file_.name, record.line, name, name_of(field.kind), must);
    };
    if (field.kind == Kind::null) {
      if (optional) return;
      refuse(", must be in every row");
    }
    if (options_.multi_label) {
      if (field.kind != Kind::list || !field.plain_items) refuse(", must be a list of strings");
      row.label_list = field.items;
      return;
    }
    if (field.kind == Kind::list) refuse(" (multi-label), must be one value; see --problem-type");
    if (field.kind == Kind::object) refuse(", must be a string, a number or a boolean");
    set_label(row, field.text);
  }

  const TextFile file_;
  const FileFormat format_;
  const DatasetOptions options_;
  Dataset about_;
  std::vector<std::string> names_;
  Columns columns_;
  // One of the two, or neither for lines of text.
  std::optional<CsvReader> csv_;
  std::optional<JsonReader> json_;
  char delimiter_ = ',';
  CsvRecord record_;
  size_t at_ = 0;  // of lines of text
  int64_t line_ = 0;
  size_t rows_ = 0, empty_ = 0, released_ = 0;
  int64_t first_empty_ = 0;
  bool is_done_ = false;
};

RowReader::RowReader(const std::string& path, const DatasetOptions& options) {
  const FileFormat format = format_of(path, options);
  std::vector<std::string> warnings;
  TextFile file = map_text_file(path, options.replace_invalid_utf8, warnings);
  source_ = std::make_unique<Source>(std::move(file), format, options, std::move(warnings));
}

RowReader::RowReader(const std::string& name, std::string bytes, const DatasetOptions& options) {
  const FileFormat format = format_of(name, options);
  std::vector<std::string> warnings;
  TextFile file = text_file(name, std::move(bytes), options.replace_invalid_utf8, warnings);
  source_ = std::make_unique<Source>(std::move(file), format, options, std::move(warnings));
}

RowReader::~RowReader() = default;

bool RowReader::next(Row& row) {
  return source_->next(row);
}

const Dataset& RowReader::about() const {
  return source_->about();
}

}  // namespace minim::text
