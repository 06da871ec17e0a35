#include "text/columns.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/error.h"

namespace minim::text {
namespace {

constexpr std::string_view row_numbers[] = {"", "id", "idx", "index"};
constexpr std::string_view usual_labels[] = {"label",  "labels",    "category", "class",
                                             "target", "sentiment", "intent"};

// "the columns are 'a', 'b'"
std::string listing(const Header& header) {
  constexpr size_t most = 20;
  const auto& names = header.names;
  if (names.size() == 1) return fmt::format("the header has one {} '{}'", header.noun, names[0]);
  std::string text = fmt::format("the {}s are ", header.noun);
  for (size_t i = 0; i < std::min(names.size(), most); ++i) {
    text += fmt::format("{}'{}'", i ? ", " : "", names[i]);
  }
  if (names.size() > most) text += fmt::format(" and {} more", names.size() - most);
  return text;
}

// Lower case without outer spaces; ASCII is enough for a suggestion.
std::string plain(std::string_view name) {
  const auto space = [](char c) { return std::isspace(uint8_t(c)) != 0; };
  while (!name.empty() && space(name.front()))
    name.remove_prefix(1);
  while (!name.empty() && space(name.back()))
    name.remove_suffix(1);
  std::string text(name);
  for (char& c : text)
    c = char(std::tolower(uint8_t(c)));
  return text;
}

// Levenshtein's distance in bytes.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({replaced, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row[b.size()];
}

// A header that was split at the wrong character is recognised by the right one inside a name.
std::string delimiter_hint(const Header& header) {
  if (header.names.size() > 2 || header.noun != "column") return "";
  constexpr std::pair<char, std::string_view> others[] = {
      {'\t', "tabs"}, {';', "semicolons"}, {'|', "pipes"}, {',', "commas"}};
  for (const auto& [c, name] : others) {
    for (const std::string& column : header.names) {
      if (column.find(c) == column.npos) continue;
      return fmt::format(
          " (another delimiter? the header has {}; .csv is split at commas, .tsv at tabs)", name);
    }
  }
  return "";
}

class Finder {
 public:
  Finder(const Header& header, Role role) : header_(header), role_(role) {}

  std::optional<size_t> find(std::string_view name) const {
    const auto& names = header_.names;
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return {};
    return size_t(found - names.begin());
  }

  // "label", else the only one of its other usual names.
  std::optional<size_t> find_usual_label() const {
    if (const auto found = find("label")) return found;
    std::optional<size_t> only;
    for (std::string_view name : usual_labels) {
      const auto found = find(name);
      if (found && only) return {};
      if (found) only = found;
    }
    return only;
  }

  // The only column that is neither taken nor a row number.
  std::optional<size_t> only_other(std::optional<size_t> taken) const {
    std::optional<size_t> only;
    for (size_t i = 0; i < header_.names.size(); ++i) {
      if (taken == i || std::ranges::count(row_numbers, header_.names[i]) > 0) continue;
      if (only) return {};
      only = i;
    }
    return only;
  }

  [[noreturn]] void fail_missing(std::string_view name, std::string_view option) const {
    const std::string needs = option == "--label-column-name" && role_ == Role::evaluate
                                  ? "; an evaluation file needs labels"
                                  : "";
    fail("{}: line {}: no {} '{}'{}{}; {}{}; name it with {}{}", header_.file, header_.line,
         header_.noun, name, needs, did_you_mean(name, header_.names), listing(header_),
         delimiter_hint(header_), option,
         header_.noun == "column" ? ", or give --column-names if the first line looks like data"
                                  : "");
  }

  void check_single(size_t column) const {
    const auto& names = header_.names;
    check(std::count(names.begin(), names.end(), names[column]) == 1,
          "{}: line {}: {} '{}' appears twice, must be unique to be read", header_.file,
          header_.line, header_.noun, names[column]);
  }

 private:
  const Header& header_;
  const Role role_;
};

void warn_of_doubles(const Header& header, std::vector<std::string>& warnings) {
  std::vector<std::string> sorted = header.names;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i] != sorted[i - 1] || (i > 1 && sorted[i] == sorted[i - 2])) continue;
    warnings.push_back(fmt::format("{}: line {}: {} '{}' appears twice", header.file, header.line,
                                   header.noun, sorted[i]));
  }
}

}  // namespace

Columns find_columns(const Header& header, const std::vector<std::string>& text_names,
                     const std::string& label_name, Role role, std::vector<std::string>& warnings) {
  check(text_names.size() <= 2, "{}: {} text columns are named, must be 1, or 2 for sentence pairs",
        header.file, text_names.size());
  const Finder finder(header, role);
  Columns columns;
  for (const std::string& name : text_names) {
    const auto found = finder.find(name);
    if (!found) finder.fail_missing(name, "--text-column-names");
    columns.text.push_back(*found);
  }
  columns.label = label_name.empty() ? finder.find_usual_label() : finder.find(label_name);
  if (label_name.empty() && std::ranges::count(columns.text, columns.label) > 0) {
    columns.label.reset();
  }
  if (!columns.label && !label_name.empty() && role != Role::predict) {
    finder.fail_missing(label_name, "--label-column-name");
  }
  if (columns.text.empty()) {
    auto text = finder.find("text");
    if (!text) text = finder.only_other(columns.label);
    if (!text) finder.fail_missing("text", "--text-column-names");
    columns.text.push_back(*text);
  }
  if (!columns.label && role != Role::predict) {
    if (columns.text.size() == 1) columns.label = finder.only_other(columns.text[0]);
    if (!columns.label) finder.fail_missing("label", "--label-column-name");
  }
  for (size_t column : columns.text) {
    finder.check_single(column);
    check(columns.label != column, "{}: line {}: {} '{}' cannot be both text and label",
          header.file, header.line, header.noun, header.names[column]);
  }
  if (columns.label) finder.check_single(*columns.label);
  warn_of_doubles(header, warnings);
  return columns;
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string wanted = plain(name);
  std::string nearest;
  size_t best = std::max<size_t>(wanted.size() / 3, 1) + 1;
  for (const std::string& candidate : candidates) {
    if (const size_t d = distance(wanted, plain(candidate)); d < best) {
      best = d;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_name(name, candidates);
  return nearest.empty() ? "" : fmt::format("; did you mean '{}'?", nearest);
}

}  // namespace minim::text
