#include "text/csv.h"

#include <string_view>

#include "core/error.h"

namespace minim::text {

CsvReader::CsvReader(const TextFile& file, char delimiter, bool quoting)
    : file_(file), delimiter_(delimiter), quoting_(quoting), at_(file.begin) {
  for (const char c : {delimiter, '\n', '\r'})
    ends_field_[uint8_t(c)] = true;
}

bool CsvReader::next(CsvRecord& record) {
  const std::string_view bytes = file_.bytes;
  while (at_ < bytes.size() && (bytes[at_] == '\n' || bytes[at_] == '\r'))
    skip_line_end();
  if (at_ == bytes.size()) return false;
  record.line = line_;
  record.begin = at_;
  for (size_t count = 1;; ++count, ++at_) {
    // Fields of the last record are written over: their memory is used again.
    if (record.fields.size() < count) record.fields.emplace_back();
    std::string& field = record.fields[count - 1];
    if (quoting_ && at_ < bytes.size() && bytes[at_] == '"') {
      read_quoted(field, int64_t(count));
    } else {
      read_plain(field);
    }
    if (file_.bad < at_) fail_bad_byte(file_, record.line, int64_t(count));
    if (at_ == bytes.size() || bytes[at_] != delimiter_) {
      record.fields.resize(count);
      if (at_ < bytes.size()) skip_line_end();
      return true;
    }
  }
}

void CsvReader::read_plain(std::string& field) {
  const char* const begin = file_.bytes.data() + at_;
  const char* const end = file_.bytes.data() + file_.bytes.size();
  const char* p = begin;
  while (p < end && !ends_field_[uint8_t(*p)])
    ++p;
  field.assign(begin, p);
  at_ += size_t(p - begin);
}

void CsvReader::read_quoted(std::string& field, int64_t number) {
  const std::string_view bytes = file_.bytes;
  const size_t open = at_++;
  field.clear();
  for (;;) {
    const size_t quote = bytes.find('"', at_);
    // Not check(): the excerpt would be made for every quote.
    if (quote == std::string::npos) {
      fail("{}: line {}, field {}: a quote is opened and never closed: {}", file_.name, line_,
           number, excerpt(bytes.substr(open)));
    }
    field.append(bytes.substr(at_, quote - at_));
    at_ = quote + 1;
    if (at_ == bytes.size() || bytes[at_] != '"') break;
    field += '"';
    ++at_;
  }
  if (at_ < bytes.size() && !ends_field_[uint8_t(bytes[at_])]) {
    fail(
        "{}: line {}, field {}: characters after the closing quote (a quote inside a quoted field "
        "is written twice): {}",
        file_.name, line_, number, excerpt(bytes.substr(open)));
  }
  line_ += count_line_ends(bytes.substr(open, at_ - open));
}

void CsvReader::skip_line_end() {
  const bool two =
      file_.bytes[at_] == '\r' && at_ + 1 < file_.bytes.size() && file_.bytes[at_ + 1] == '\n';
  at_ += two ? 2 : 1;
  ++line_;
}

}  // namespace minim::text
