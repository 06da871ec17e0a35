#include "text/label_names.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <memory>

#include <fmt/format.h>
#include <utf8proc.h>

namespace minim::text {
namespace {

bool all_digits(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Composed (NFC), and with `fold` also case-folded.
std::string compose(const std::string& text, bool fold) {
  uint8_t* out = nullptr;
  const int options = UTF8PROC_STABLE | UTF8PROC_COMPOSE | (fold ? UTF8PROC_CASEFOLD : 0);
  const auto size = utf8proc_map(reinterpret_cast<const uint8_t*>(text.data()),
                                 utf8proc_ssize_t(text.size()), &out, utf8proc_option_t(options));
  const std::unique_ptr<uint8_t, void (*)(void*)> owner(out, std::free);
  if (size < 0) return text;
  return std::string(reinterpret_cast<const char*>(out), size_t(size));
}

// Without outer spaces, inner runs of spaces as one.
std::string squeeze(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool space = std::isspace(uint8_t(c)) != 0;
    if (!space) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

}  // namespace

bool is_integer(std::string_view label) {
  const std::string_view digits = label.starts_with('-') ? label.substr(1) : label;
  if (digits.empty() || !all_digits(digits)) return false;
  return digits[0] != '0' || label == "0";
}

bool integer_less(std::string_view a, std::string_view b) {
  const bool minus = a[0] == '-';
  if (minus != (b[0] == '-')) return minus;
  if (minus) std::swap(a, b);
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

std::optional<std::string> canonical_number(std::string_view label) {
  bool minus = false;
  if (label.starts_with('-') || label.starts_with('+')) {
    minus = label[0] == '-';
    label.remove_prefix(1);
  }
  const size_t point = std::min(label.find('.'), label.size());
  std::string_view whole = label.substr(0, point);
  std::string_view part = label.substr(std::min(point + 1, label.size()));
  if (whole.empty() || !all_digits(whole) || !all_digits(part)) return {};
  whole.remove_prefix(std::min(whole.find_first_not_of('0'), whole.size() - 1));
  part = part.substr(0, part.find_last_not_of('0') + 1);
  std::string number = std::string(whole) + (part.empty() ? "" : "." + std::string(part));
  return minus && number != "0" ? "-" + number : number;
}

bool are_placeholders(const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != "LABEL_" + std::to_string(i)) return false;
  }
  return true;
}

std::vector<std::string> similar_labels(const std::vector<std::string>& names) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const std::string& name : names)
    groups[squeeze(compose(name, true))].push_back(name);
  std::vector<std::string> sentences;
  for (const auto& [folded, group] : groups) {
    if (group.size() < 2) continue;
    std::string list;
    std::map<std::string, int> composed;
    bool alike = false;
    for (const std::string& name : group) {
      list += fmt::format("{}'{}'", list.empty() ? "" : ", ", name);
      alike |= composed[compose(name, false)]++ > 0;
    }
    sentences.push_back(
        alike ? fmt::format("{} labels look alike: {} (they differ in Unicode normalization)",
                            group.size() == 2 ? "two" : std::to_string(group.size()), list)
              : fmt::format("labels {} differ only by case or spaces", list));
  }
  return sentences;
}

}  // namespace minim::text
