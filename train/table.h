#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace minim::train {

// 65783042 as 65,783,042.
std::string with_commas(int64_t number);
// Bytes in MiB, with two decimals.
std::string in_mib(int64_t bytes);

// Characters of a text in UTF-8, which is near enough to its columns.
size_t code_points(const std::string& text);

// Text in columns, two spaces apart: the first column from the left, the others from the right.
// Widths count code points, so that "±" and block characters align.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // As many cells as the header has.
  void add(std::vector<std::string> row);
  std::string to_string() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace minim::train
