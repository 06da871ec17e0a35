#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace minim::text {

// What the rows of a file are for. Training and evaluation need a label in every row; prediction
// takes one where there is one.
enum class Role : uint8_t { train, evaluate, predict };

// Places of the chosen columns among those of a file.
struct Columns {
  std::vector<size_t> text;  // one, or two for a sentence pair
  std::optional<size_t> label;
};

// Where a header was read, and what its entries are called there.
struct Header {
  std::string file;
  int64_t line = 1;
  std::string_view noun = "column";  // "key" in JSON
  std::vector<std::string> names;
};

// Finds the columns by the names asked for; what is not asked for (no text names, empty label name)
// is found by its usual name ("text"; "label", "category", ...), or as the only column left. Throws
// listing the columns, the nearest name and the option to set it where that is ambiguous, and for a
// chosen column that appears twice.
Columns find_columns(const Header& header, const std::vector<std::string>& text_names,
                     const std::string& label_name, Role role, std::vector<std::string>& warnings);

// The candidate most like a misspelt name (ignoring case and outer spaces, at most a third of its
// letters wrong), or empty.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

// "; did you mean 'x'?", or nothing when no candidate is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace minim::text
