#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/text_file.h"

namespace minim::text {

// One key of a JSON object. Numbers and booleans are kept as the text they are written as.
struct JsonField {
  enum class Kind : uint8_t { string, number, boolean, null, list, object };
  std::string key = {};
  Kind kind = Kind::null;
  std::string text = {};                // of a string, number or boolean
  std::vector<std::string> items = {};  // of a list: its strings, numbers and booleans
  bool plain_items = true;              // false if the list holds anything else
};

// "a string", "null", "a list" and so on.
std::string_view name_of(JsonField::Kind kind);

struct JsonRecord {
  int64_t line = 0;  // 1-based physical line on which the object starts
  std::vector<JsonField> fields;

  // The field with that key, or nullptr.
  const JsonField* find(std::string_view key) const;
};

// Reads objects one after another, from JSON lines or from one JSON array of objects, whichever the
// first character says. Blank lines are skipped.
class JsonReader {
 public:
  // `file` must outlive the reader.
  explicit JsonReader(const TextFile& file);

  // Reads the next object, or returns false at the end. Throws naming file and line for malformed
  // JSON, anything but an object, a key that appears twice, ill-formed UTF-8 and NUL.
  bool next(JsonRecord& record);
  // How far into the file that went.
  size_t offset() const { return at_; }

 private:
  bool next_line(std::string_view& object);
  bool next_element(std::string_view& object);
  void skip_space();
  size_t element_end() const;
  void parse(std::string_view object, JsonRecord& record) const;

  const TextFile& file_;
  size_t at_;
  int64_t line_ = 1;
  bool array_ = false;
  bool first_ = true;
};

}  // namespace minim::text
