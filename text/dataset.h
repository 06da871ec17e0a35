#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "text/columns.h"

namespace minim::text {

// CSV: commas and RFC 4180 quotes. TSV: tabs, no quotes. JSON: lines of objects or one array of
// objects. Text: one text per line, for prediction.
enum class FileFormat : uint8_t { by_extension, csv, tsv, json, text };

// One example, every value kept as it is written in the file.
struct Row {
  std::string text = {};
  std::optional<std::string> text_pair = {};  // second text of a sentence pair
  std::optional<std::string> label = {};      // absent where a prediction file has none
  std::vector<std::string> label_list = {};   // of multi-label data, instead of `label`
  int64_t line = 0;                           // 1-based physical line on which the row starts
  int64_t times = 1;                          // as many rows of the file it stands for
};

struct DatasetOptions {
  Role role = Role::train;
  FileFormat format = FileFormat::by_extension;
  // One name, or two for sentence pairs; found from the header where left empty.
  std::vector<std::string> text_columns = {};
  std::string label_column = {};
  // Names for a file without a header line, such as {"label", "text"}.
  std::vector<std::string> column_names = {};
  // Labels are lists (JSON only); without it a list is an error, never another kind of task.
  bool multi_label = false;
  // Replace ill-formed UTF-8 by U+FFFD, with a warning, instead of an error.
  bool replace_invalid_utf8 = false;
};

// The rows of one file, at least one.
struct Dataset {
  std::string file = {};
  Role role = Role::train;
  std::vector<Row> rows = {};
  std::vector<std::string> text_columns = {};  // as chosen or found
  std::string label_column = {};               // empty where there is none
  int64_t label_field = 0;                 // 1-based field of the label in each record; 0 in JSON
  std::vector<std::string> warnings = {};  // sentences that begin with the file's name
};

// Reads a data file ("-": standard input, one text per line unless a format is set). Throws naming
// the file and, as far as there is one, line, field and byte.
Dataset read_dataset(const std::string& path, const DatasetOptions& options = {});

// The same from memory; `name` stands for the file in messages and decides the format.
Dataset parse_dataset(const std::string& name, std::string bytes,
                      const DatasetOptions& options = {});

// "file: line 3, field 2", the place of a row's label, for messages.
std::string label_place(const Dataset& data, const Row& row);

}  // namespace minim::text
