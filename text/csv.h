#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "text/text_file.h"

namespace minim::text {

// One record of a delimited file.
struct CsvRecord {
  int64_t line = 0;  // 1-based physical line on which it starts
  size_t begin = 0;  // offset of its first byte in the file
  std::vector<std::string> fields;
};

// Splits a file into records and fields, keeping every field as written. Lines end in LF, CRLF or
// CR; blank lines are skipped. With quoting (CSV, RFC 4180) a field that starts with a quote runs
// to its closing quote, over line ends too; without (TSV) quotes are ordinary characters.
class CsvReader {
 public:
  // `file` must outlive the reader.
  CsvReader(const TextFile& file, char delimiter, bool quoting);

  // Reads the next record, or returns false at the end of the file. Throws naming file, line and
  // field for a quote that never closes, characters after a closing quote, ill-formed UTF-8 and
  // NUL.
  bool next(CsvRecord& record);
  // How far into the file that went.
  size_t offset() const { return at_; }

 private:
  void read_plain(std::string& field);
  void read_quoted(std::string& field, int64_t number);
  void skip_line_end();

  const TextFile& file_;
  const char delimiter_;
  const bool quoting_;
  std::array<bool, 256> ends_field_{};
  size_t at_;
  int64_t line_ = 1;
};

}  // namespace minim::text
