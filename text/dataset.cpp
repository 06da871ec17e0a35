#include "text/dataset.h"

#include <algorithm>
#include <filesystem>
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

// Turns the records of one file into rows.
class Builder {
 public:
  Builder(const TextFile& file, const DatasetOptions& options, Dataset& data)
      : file_(file), options_(options), data_(data) {}

  void read_delimited(char delimiter, bool quoting) {
    check(!options_.multi_label, "{}: lists of labels need a JSON file", file_.name);
    CsvReader reader(file_, delimiter, quoting);
    CsvRecord record;
    if (options_.column_names.empty()) {
      check(reader.next(record), "{}: file is empty", file_.name);
      choose({file_.name, record.line, "column", record.fields});
    } else {
      choose({file_.name, 1, "column", options_.column_names});
    }
    const size_t width = names_.size();
    if (columns_.label) data_.label_field = int64_t(*columns_.label) + 1;
    while (reader.next(record)) {
      if (record.fields.size() != width) fail_width(record, width, delimiter);
      Row row{.line = record.line};
      row.text = std::move(record.fields[columns_.text[0]]);
      if (columns_.text.size() == 2) row.text_pair = std::move(record.fields[columns_.text[1]]);
      if (columns_.label) set_label(row, std::move(record.fields[*columns_.label]));
      data_.rows.push_back(std::move(row));
    }
  }

  void read_json() {
    check(options_.column_names.empty(), "{}: --column-names is for files without keys",
          file_.name);
    JsonReader reader(file_);
    JsonRecord record;
    while (reader.next(record)) {
      if (names_.empty()) {
        Header header{file_.name, record.line, "key", {}};
        for (const JsonField& field : record.fields)
          header.names.push_back(field.key);
        choose(header);
      }
      Row row{.line = record.line};
      row.text = json_text(record, data_.text_columns[0]);
      if (columns_.text.size() == 2) row.text_pair = json_text(record, data_.text_columns[1]);
      set_json_label(row, record);
      data_.rows.push_back(std::move(row));
    }
  }

  void read_lines() {
    check(options_.role == Role::predict,
          "{}: a plain text file has no labels, must be used for "
          "prediction only",
          file_.name);
    data_.text_columns = {"text"};
    const std::string& bytes = file_.bytes;
    int64_t line = 1;
    for (size_t at = file_.begin; at < bytes.size(); ++line) {
      const size_t end = std::min(bytes.find_first_of("\r\n", at), bytes.size());
      if (file_.bad < end) fail_bad_byte(file_, line, 0);
      // Empty lines stay rows, so that predictions come line by line.
      data_.rows.push_back({.text = bytes.substr(at, end - at), .line = line});
      at = end + (bytes.compare(end, 2, "\r\n") == 0 ? 2 : 1);
    }
  }

  void finish() {
    check(!data_.rows.empty(), "{}: {}", file_.name,
          file_.begin == file_.bytes.size() ? "file is empty" : "no rows");
    size_t empty = 0;
    int64_t first = 0;
    for (const Row& row : data_.rows) {
      if (!row.text.empty() && !(row.text_pair && row.text_pair->empty())) continue;
      if (empty++ == 0) first = row.line;
    }
    if (empty > 0) {
      data_.warnings.push_back(fmt::format("{}: {} empty text{} ({}line {})", file_.name, empty,
                                           plural(empty), empty > 1 ? "first in " : "", first));
    }
  }

 private:
  void choose(const Header& header) {
    columns_ = find_columns(header, options_.text_columns, options_.label_column, options_.role,
                            data_.warnings);
    names_ = header.names;
    for (size_t column : columns_.text)
      data_.text_columns.push_back(names_[column]);
    if (columns_.label) {
      data_.label_column = names_[*columns_.label];
    } else if (header.noun == "key") {
      data_.label_column = options_.label_column;  // later rows may have it
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
         excerpt(std::string_view(file_.bytes).substr(record.begin)));
  }

  void set_label(Row& row, std::string label) const {
    if (label.empty()) {
      if (options_.role == Role::predict) return;
      fail("{}: label is empty, must be in every row", label_place(data_, row));
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
    const std::string& name = data_.label_column;
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

  const TextFile& file_;
  const DatasetOptions& options_;
  Dataset& data_;
  std::vector<std::string> names_;
  Columns columns_;
};

Dataset parse(const TextFile& file, FileFormat format, const DatasetOptions& options,
              std::vector<std::string> warnings) {
  Dataset data{.file = file.name, .role = options.role, .warnings = std::move(warnings)};
  Builder builder(file, options, data);
  switch (format) {
    case FileFormat::csv:
      builder.read_delimited(',', true);
      break;
    case FileFormat::tsv:
      builder.read_delimited('\t', false);
      break;
    case FileFormat::text:
      builder.read_lines();
      break;
    default:
      builder.read_json();
  }
  builder.finish();
  return data;
}

}  // namespace

Dataset read_dataset(const std::string& path, const DatasetOptions& options) {
  const FileFormat format = format_of(path, options);
  std::vector<std::string> warnings;
  const TextFile file = read_text_file(path, options.replace_invalid_utf8, warnings);
  return parse(file, format, options, std::move(warnings));
}

Dataset parse_dataset(const std::string& name, std::string bytes, const DatasetOptions& options) {
  const FileFormat format = format_of(name, options);
  std::vector<std::string> warnings;
  const TextFile file = text_file(name, std::move(bytes), options.replace_invalid_utf8, warnings);
  return parse(file, format, options, std::move(warnings));
}

std::string label_place(const Dataset& data, const Row& row) {
  if (data.label_field == 0) return fmt::format("{}: line {}", data.file, row.line);
  return fmt::format("{}: line {}, field {}", data.file, row.line, data.label_field);
}

}  // namespace minim::text
