#include "text/json_rows.h"

#include <nlohmann/json.hpp>

#include "core/error.h"

namespace minim::text {
namespace {

using Kind = JsonField::Kind;

// Keeps the keys of one object in order; what is nested deeper is checked but not kept, but for the
// items of a list.
class ObjectHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit ObjectHandler(std::vector<JsonField>& fields) : fields_(fields) {}

  bool null() override { return value(Kind::null, "null"); }
  bool boolean(bool v) override { return value(Kind::boolean, v ? "true" : "false"); }
  bool number_integer(number_integer_t v) override {
    return value(Kind::number, std::to_string(v));
  }
  bool number_unsigned(number_unsigned_t v) override {
    return value(Kind::number, std::to_string(v));
  }
  bool number_float(number_float_t, const string_t& s) override { return value(Kind::number, s); }
  bool string(string_t& s) override { return value(Kind::string, std::move(s)); }
  bool binary(binary_t&) override { return false; }  // JSON text has none
  bool start_object(std::size_t) override { return open(Kind::object); }
  bool start_array(std::size_t) override { return open(Kind::list); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& s) override {
    if (depth_ > 1) return true;
    for (const JsonField& field : fields_) {
      if (field.key == s) error = "key '" + s + "' appears twice";
    }
    key_ = std::move(s);
    return error.empty();
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& exception) override {
    // The library's text is "[id] parse error at line l, column c: what happened; expected this".
    const std::string_view what = exception.what();
    const size_t colon = what.find(": ");
    const std::string_view reason = colon == what.npos ? what : what.substr(colon + 2);
    if (reason.find("surrogate") != reason.npos) {
      error = "lone surrogate in a \\u escape";
    } else if (reason.find("; expected end of input") != reason.npos) {
      error = "characters after the object, must be one object per line";
    } else {
      error = fmt::format("not valid JSON (character {}: {})", position, reason);
    }
    return false;
  }

  std::string error;  // why parsing stopped

 private:
  bool value(Kind kind, std::string text) {
    if (depth_ == 0) return refuse();
    if (depth_ == 1) {
      fields_.push_back({.key = key_, .kind = kind, .text = std::move(text)});
    } else if (depth_ == 2 && fields_.back().kind == Kind::list) {
      if (kind == Kind::null) fields_.back().plain_items = false;
      fields_.back().items.push_back(std::move(text));
    }
    return true;
  }

  bool open(Kind kind) {
    if (depth_ == 0 && kind == Kind::list) return refuse();
    if (depth_ == 1) fields_.push_back({.key = key_, .kind = kind});
    if (depth_ == 2) fields_.back().plain_items = false;
    ++depth_;
    return true;
  }

  bool close() {
    --depth_;
    return true;
  }

  bool refuse() {
    error = "not an object, must be {\"text\": ..., \"label\": ...}";
    return false;
  }

  std::vector<JsonField>& fields_;
  std::string key_;
  int depth_ = 0;
};

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

}  // namespace

std::string_view name_of(Kind kind) {
  constexpr std::string_view names[] = {"a string", "a number", "a boolean",
                                        "null",     "a list",   "an object"};
  return names[size_t(kind)];
}

const JsonField* JsonRecord::find(std::string_view key) const {
  for (const JsonField& field : fields) {
    if (field.key == key) return &field;
  }
  return nullptr;
}

JsonReader::JsonReader(const TextFile& file) : file_(file), at_(file.begin) {
  skip_space();
  array_ = at_ < file.bytes.size() && file.bytes[at_] == '[';
  if (array_) ++at_;
}

bool JsonReader::next(JsonRecord& record) {
  skip_space();
  record.line = line_;
  std::string_view object;
  if (!(array_ ? next_element(object) : next_line(object))) return false;
  parse(object, record);
  line_ += count_line_ends(object);
  return true;
}

bool JsonReader::next_line(std::string_view& object) {
  const std::string_view bytes = file_.bytes;
  if (at_ == bytes.size()) return false;
  const size_t end = std::min(bytes.find_first_of("\r\n", at_), bytes.size());
  object = bytes.substr(at_, end - at_);
  at_ = end;
  return true;
}

bool JsonReader::next_element(std::string_view& object) {
  const std::string_view bytes = file_.bytes;
  const auto malformed = [&](const char* why) {
    fail("{}: line {}: not valid JSON ({})", file_.name, line_, why);
  };
  if (at_ == bytes.size()) malformed("the array is never closed");
  if (!first_ && bytes[at_] == ',') {
    ++at_;
    skip_space();
    if (at_ < bytes.size() && bytes[at_] == ']') malformed("a comma before the closing bracket");
  } else if (bytes[at_] == ']') {
    ++at_;
    skip_space();
    if (at_ < bytes.size()) malformed("characters after the array");
    return false;
  } else if (!first_) {
    malformed("a comma is missing between two objects");
  }
  first_ = false;
  const size_t end = element_end();
  object = bytes.substr(at_, end - at_);
  at_ = end;
  return true;
}

void JsonReader::skip_space() {
  const size_t from = at_;
  while (at_ < file_.bytes.size() && is_space(file_.bytes[at_]))
    ++at_;
  line_ += count_line_ends(file_.bytes.substr(from, at_ - from));
}

// End of the array element at at_: the comma or bracket behind it, or the end of the file.
size_t JsonReader::element_end() const {
  const std::string_view bytes = file_.bytes;
  bool in_string = false;
  int64_t depth = 0;
  size_t at = at_;
  for (; at < bytes.size(); ++at) {
    const char c = bytes[at];
    if (in_string) {
      if (c == '\\') ++at;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (depth == 0 && (c == ',' || c == ']')) {
      break;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return std::min(at, bytes.size());
}

void JsonReader::parse(std::string_view object, JsonRecord& record) const {
  if (file_.bad < at_) fail_bad_byte(file_, record.line, 0);
  record.fields.clear();
  ObjectHandler handler(record.fields);
  if (!nlohmann::json::sax_parse(object, &handler)) {
    fail("{}: line {}: {}: {}", file_.name, record.line, handler.error, excerpt(object));
  }
}

}  // namespace minim::text
