#include "core/safetensors_json.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "core/printable.h"

namespace minim {
namespace {

// As deep as the reference reader follows objects and lists.
constexpr int deepest = 127;
constexpr size_t most_dimensions = 64;
constexpr size_t longest_name = 65535;

// Receives the parser's events. Containers that carry no meaning (extra keys of a tensor) are
// only counted; nothing here recurses.
class HeaderEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderEvents(SafetensorsHeader& header) : header_(header) {}

  std::string problem;

  bool null() override {
    if (place_ == Place::metadata_value) {
      place_ = Place::header;
      return true;
    }
    return value("null");
  }
  bool boolean(bool) override { return value("a boolean"); }
  bool number_integer(number_integer_t) override { return value("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return value("a number that is not an integer below 2^64");
  }
  bool number_unsigned(number_unsigned_t number) override {
    if (place_ == Place::dimension) {
      if (entry().shape.size() == most_dimensions) {
        return refuse("more than {} dimensions in tensor {}", most_dimensions,
                      printable(entry().name));
      }
      entry().shape.push_back(number);
      return true;
    }
    if (place_ == Place::offset) {
      if (offsets_ == 2) return refuse("more than two offsets in {}", printable(entry().name));
      (offsets_++ == 0 ? entry().begin : entry().end) = number;
      return true;
    }
    return value("a number");
  }
  bool string(string_t& text) override {
    if (place_ == Place::metadata_text) {
      header_.metadata[std::move(metadata_key_)] = std::move(text);
      place_ = Place::metadata;
      return true;
    }
    if (place_ != Place::dtype) return value("a string");
    const std::optional<StoredDType> dtype = stored_dtype_named(text);
    if (!dtype) {
      return refuse("unknown dtype {} of tensor {}", printable(text), printable(entry().name));
    }
    entry().dtype = *dtype;
    place_ = Place::tensor;
    return true;
  }
  bool binary(binary_t&) override { return value("binary data"); }

  bool start_object(size_t) override {
    if (!deeper()) return false;
    if (place_ == Place::start) {
      place_ = Place::header;
    } else if (place_ == Place::metadata_value) {
      place_ = Place::metadata;
    } else if (place_ == Place::tensor_value) {
      place_ = Place::tensor;
    } else if (!ignoring()) {
      return value("an object");
    }
    return true;
  }
  bool end_object() override {
    --depth_;
    if (ignoring()) {
      leave_ignored();
    } else if (place_ == Place::tensor) {
      place_ = Place::header;
      for (size_t i = 0; i < fields.size(); ++i) {
        if (!seen_[i]) return refuse("no {} in tensor {}", fields[i], printable(entry().name));
      }
    } else {
      place_ = place_ == Place::metadata ? Place::header : Place::end;
    }
    return true;
  }
  bool start_array(size_t) override {
    if (!deeper()) return false;
    if (place_ == Place::shape_value) {
      place_ = Place::dimension;
    } else if (place_ == Place::offsets_value) {
      place_ = Place::offset;
      offsets_ = 0;
    } else if (!ignoring()) {
      return value("a list");
    }
    return true;
  }
  bool end_array() override {
    --depth_;
    if (ignoring()) {
      leave_ignored();
      return true;
    }
    if (place_ == Place::offset && offsets_ != 2) {
      return refuse("{} offsets instead of two in tensor {}", offsets_, printable(entry().name));
    }
    place_ = Place::tensor;
    return true;
  }

  bool key(string_t& text) override {
    if (ignoring()) return true;
    if (place_ == Place::tensor) {
      const auto field = std::ranges::find(fields, text);
      if (field == fields.end()) {
        place_ = Place::ignored;
        ignored_depth_ = depth_;
        return true;
      }
      const auto i = size_t(field - fields.begin());
      if (std::exchange(seen_[i], true)) {
        return refuse("{} twice in tensor {}", text, printable(entry().name));
      }
      constexpr Place places[] = {Place::dtype, Place::shape_value, Place::offsets_value};
      place_ = places[i];
      return true;
    }
    if (text.size() > longest_name) {
      return refuse("a name of {} bytes, at most {} are read", text.size(), longest_name);
    }
    if (place_ == Place::metadata) {
      if (header_.metadata.contains(text)) return refuse("metadata key {} twice", printable(text));
      metadata_key_ = std::move(text);
      place_ = Place::metadata_text;
    } else if (text == "__metadata__") {
      if (std::exchange(metadata_seen_, true)) return refuse("__metadata__ twice");
      place_ = Place::metadata_value;
    } else {
      header_.entries.emplace_back().name = std::move(text);
      seen_ = {};
      place_ = Place::tensor_value;
    }
    return true;
  }

  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::json::exception&) override {
    return refuse("a syntax error at byte {} near {}", position, printable(token));
  }

 private:
  enum class Place : uint8_t {
    start,
    header,          // a name must follow
    metadata_value,  // the object or null after __metadata__
    metadata,
    metadata_text,
    tensor_value,  // the object after a name
    tensor,
    dtype,
    shape_value,
    dimension,
    offsets_value,
    offset,
    ignored,  // the value of a key that tensors need not have
    end
  };
  static constexpr std::array<std::string_view, 3> fields = {"dtype", "shape", "data_offsets"};

  SafetensorsEntry& entry() { return header_.entries.back(); }
  bool ignoring() const { return place_ == Place::ignored; }
  bool deeper() {
    return ++depth_ <= deepest || refuse("objects and lists nested deeper than {}", deepest);
  }
  void leave_ignored() {
    if (depth_ == ignored_depth_) place_ = Place::tensor;
  }

  // A value that no other event took: fine inside an ignored key, else of the wrong type.
  bool value(std::string_view what) {
    if (ignoring()) {
      leave_ignored();
      return true;
    }
    switch (place_) {
      case Place::start:
        return refuse("{} instead of an object", what);
      case Place::metadata_value:
        return refuse("{} instead of an object as __metadata__", what);
      case Place::metadata_text:
        return refuse("{} instead of a string as metadata {}", what, printable(metadata_key_));
      case Place::dtype:
        return refuse("{} instead of a name as dtype of tensor {}", what, printable(entry().name));
      case Place::shape_value:
      case Place::dimension:
        return refuse("{} in the shape of tensor {}, which must be a list of integers from 0", what,
                      printable(entry().name));
      case Place::offsets_value:
      case Place::offset:
        return refuse("{} in the data_offsets of tensor {}, which must be two integers from 0",
                      what, printable(entry().name));
      default:
        return refuse("{} instead of an object as tensor {}", what, printable(entry().name));
    }
  }

  template <class... Args>
  bool refuse(fmt::format_string<Args...> text, Args&&... args) {
    if (problem.empty()) problem = fmt::format(text, std::forward<Args>(args)...);
    return false;
  }

  SafetensorsHeader& header_;
  Place place_ = Place::start;
  int depth_ = 0;
  int ignored_depth_ = 0;
  int offsets_ = 0;
  std::array<bool, 3> seen_{};
  bool metadata_seen_ = false;
  std::string metadata_key_;
};

// Sorting, not hashing, so that no choice of names makes it slow.
std::string repeated_name(const std::vector<SafetensorsEntry>& entries) {
  std::vector<std::string_view> names;
  names.reserve(entries.size());
  for (const SafetensorsEntry& entry : entries)
    names.push_back(entry.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  return twice == names.end() ? "" : fmt::format("tensor {} twice", printable(*twice));
}

}  // namespace

std::string read_safetensors_json(std::string_view json, SafetensorsHeader& header) {
  // The JSON library takes a NUL for the end of the text and skips a byte order mark.
  if (const size_t nul = json.find('\0'); nul != json.npos) {
    return fmt::format("a NUL character at byte {}", nul);
  }
  if (json.starts_with("\xef\xbb\xbf")) return "a byte order mark";
  // It also remembers white space, of which padding may bring a hundred megabytes.
  constexpr std::string_view space = " \t\r\n";
  json = json.substr(0, json.find_last_not_of(space) + 1);
  json.remove_prefix(std::min(json.find_first_not_of(space), json.size()));
  if (json.empty()) return "no JSON at all";
  HeaderEvents events(header);
  if (!nlohmann::json::sax_parse(json, &events)) return events.problem;
  return repeated_name(header.entries);
}

}  // namespace minim
