#include "optim/similar_names.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace minim::optim {

namespace {

// Number of letters to insert, delete or replace to make one text of the other (Levenshtein).
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string similar_names(std::string_view asked, std::span<const std::string_view> names) {
  std::vector<std::pair<size_t, std::string_view>> near;
  for (const std::string_view name : names) {
    const std::string_view end = name.substr(name.size() - std::min(name.size(), asked.size()));
    const size_t distance = std::min(edit_distance(name, asked), edit_distance(end, asked));
    if (distance <= asked.size() / 3) near.emplace_back(distance, name);
  }
  std::ranges::stable_sort(near, {}, [](const auto& entry) { return entry.first; });
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(near.size(), 3); ++i)
    text += (i > 0 ? ", " : "; similar: ") + std::string(near[i].second);
  return text;
}

}  // namespace minim::optim
