#include "train/table.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"

namespace minim::train {

// All bytes but continuations.
size_t code_points(const std::string& text) {
  return size_t(std::ranges::count_if(text, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string in_mib(int64_t bytes) {
  return fmt::format("{:.2f}", double(bytes) / 0x1p20);
}

std::string with_commas(int64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = int64_t(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(size_t(at), ",");
  return digits;
}

Table::Table(std::vector<std::string> header) {
  rows_.push_back(std::move(header));
}

void Table::add(std::vector<std::string> row) {
  check(row.size() == rows_[0].size(), "table: a row of {} cells under a header of {}", row.size(),
        rows_[0].size());
  rows_.push_back(std::move(row));
}

std::string Table::to_string() const {
  std::vector<size_t> widths(rows_[0].size());
  for (const auto& row : rows_)
    for (size_t c = 0; c < row.size(); ++c)
      widths[c] = std::max(widths[c], code_points(row[c]));
  std::string text;
  for (const auto& row : rows_) {
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - code_points(row[c]), ' ');
      text += c == 0 ? row[c] + padding : "  " + padding + row[c];
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

}  // namespace minim::train
