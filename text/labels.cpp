#include "text/labels.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "core/error.h"
#include "text/label_names.h"

namespace minim::text {
namespace {

struct Occurrence {
  int64_t rows = 0;
  const Row* first = nullptr;
};
using Occurrences = std::map<std::string, Occurrence, std::less<>>;

void for_each_label(const Row& row, const std::function<void(const std::string&)>& visit) {
  if (row.label) visit(*row.label);
  for (const std::string& label : row.label_list)
    visit(label);
}

// Distinct labels in code-point order, which is the byte order of UTF-8.
Occurrences occurrences(const Dataset& data) {
  Occurrences found;
  for (const Row& row : data.rows) {
    for_each_label(row, [&](const std::string& label) {
      Occurrence& one = found[label];
      if (one.rows == 0) one.first = &row;
      one.rows += row.times;
    });
  }
  return found;
}

std::string rows_text(int64_t count) {
  return fmt::format("{} row{}", count, count == 1 ? "" : "s");
}

void refuse_equal_numbers(const Dataset& train, const Occurrences& found) {
  const bool integers =
      std::ranges::any_of(found, [](const auto& entry) { return is_integer(entry.first); });
  std::map<std::string, std::string> seen;
  for (const auto& [label, occurrence] : found) {
    const auto number = canonical_number(label);
    if (!number) continue;
    const auto place = [&train, first = occurrence.first] { return label_place(train, *first); };
    if (integers && label.find('.') != label.npos && number->find('.') == number->npos) {
      fail("{}: label '{}' among integer labels, must be written as '{}'", place(), label, *number);
    }
    const auto [other, is_new] = seen.emplace(*number, label);
    check(is_new, "{}: labels '{}' and '{}' are the same number, must be written in one way",
          is_new ? "" : place(), other->second, label);
  }
}

bool is_class(const LabelSet& labels, const Row& row) {
  bool known = true;
  for_each_label(row, [&](const std::string& label) { known &= labels.find(label).has_value(); });
  return known;
}

[[noreturn]] void fail_unseen(const Dataset& data, const LabelSet& labels) {
  std::vector<std::pair<std::string, Occurrence>> unseen;
  for (const auto& entry : occurrences(data)) {
    if (!labels.find(entry.first)) unseen.push_back(entry);
  }
  std::ranges::sort(unseen, {}, [](const auto& entry) { return entry.second.first->line; });
  const auto& [label, occurrence] = unseen.front();
  std::string others;
  constexpr size_t most = 10;
  for (size_t i = 1; i < std::min(unseen.size(), most + 1); ++i) {
    others += fmt::format("; nor does '{}' (line {}, {})", unseen[i].first,
                          unseen[i].second.first->line, rows_text(unseen[i].second.rows));
  }
  if (unseen.size() > most + 1) others += fmt::format("; nor {} more", unseen.size() - most - 1);
  fail("{}: label '{}' does not occur in the training file ({}){}{}; {}",
       label_place(data, *occurrence.first), label, rows_text(occurrence.rows), others,
       did_you_mean(label, labels.names()),
       label == "-1" ? "for a file without labels use prediction"
                     : "skip such rows with --skip-unseen-labels");
}

}  // namespace

LabelSet::LabelSet(std::vector<std::string> names) : names_(std::move(names)) {
  for (const std::string& name : names_) {
    check(ids_.emplace(name, int64_t(ids_.size())).second,
          "labels: '{}' is the name of two classes", name);
  }
}

std::optional<int64_t> LabelSet::find(std::string_view label) const {
  const auto found = ids_.find(label);
  if (found == ids_.end()) return {};
  return found->second;
}

LabelSet collect_labels(const Dataset& train, LabelOrder order,
                        std::vector<std::string>& warnings) {
  const Occurrences found = occurrences(train);
  check(!found.empty(), "{}: no labels, must be in every row of a training file", train.file);
  // A single name among lists still tells rows that have it from rows that have not.
  if (found.size() == 1 && found.begin()->second.first->label) {
    fail("{}: only one class ('{}', {}), must be at least two", train.file, found.begin()->first,
         rows_text(found.begin()->second.rows));
  }
  refuse_equal_numbers(train, found);
  std::vector<std::string> names;
  for (const auto& entry : found)
    names.push_back(entry.first);
  if (order == LabelOrder::numeric && std::ranges::all_of(names, is_integer)) {
    std::ranges::sort(names, integer_less);
  }
  for (const std::string& sentence : similar_labels(names)) {
    warnings.push_back(fmt::format("{}: {}", train.file, sentence));
  }
  return LabelSet(std::move(names));
}

LabelSet keep_checkpoint_order(const LabelSet& data, const std::vector<std::string>& checkpoint,
                               std::vector<std::string>& warnings) {
  if (checkpoint.empty()) return data;
  if (std::ranges::is_permutation(data.names(), checkpoint)) return LabelSet(checkpoint);
  if (are_placeholders(checkpoint)) {
    warnings.push_back(fmt::format(
        "checkpoint: its {} classes have no names; if it was trained on this task, check that its "
        "order is '{}' for id 0 and so on",
        checkpoint.size(), data.names().front()));
  } else {
    warnings.push_back(
        fmt::format("checkpoint: its classes ('{}', ...; {} in all) are not those of the data "
                    "('{}', ...; {} in "
                    "all); the data's are used",
                    checkpoint.front(), checkpoint.size(), data.names().front(), data.size()));
  }
  return data;
}

std::vector<int64_t> label_ids(const Dataset& data, const LabelSet& labels) {
  std::vector<int64_t> ids;
  ids.reserve(data.rows.size());
  for (const Row& row : data.rows) {
    const auto id = row.label ? labels.find(*row.label) : std::nullopt;
    if (!id && data.role != Role::predict) {
      check(row.label.has_value(), "{}: line {}: no label", data.file, row.line);
      fail_unseen(data, labels);
    }
    ids.push_back(id.value_or(-1));
  }
  return ids;
}

void skip_unseen_labels(Dataset& data, const LabelSet& labels) {
  int64_t skipped = 0;
  std::string first;
  for (const Row& row : data.rows) {
    if (is_class(labels, row)) continue;
    if (skipped == 0) first = fmt::format("line {}", row.line);
    skipped += row.times;
  }
  std::erase_if(data.rows, [&](const Row& row) { return !is_class(labels, row); });
  check(!data.rows.empty(), "{}: no row has a label of the training file", data.file);
  if (skipped == 0) return;
  data.warnings.push_back(
      fmt::format("{}: {} skipped, their labels do not occur in the training file (first in {})",
                  data.file, rows_text(skipped), first));
}

std::vector<float> regression_targets(const Dataset& data) {
  std::vector<float> targets;
  targets.reserve(data.rows.size());
  for (const Row& row : data.rows) {
    const std::string text = row.label.value_or("");
    float value = 0;
    const bool plus = text.starts_with('+') && !text.starts_with("+-");
    const char* const begin = text.data() + (plus ? 1 : 0);
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(begin, end, value);
    if (parsed.ec != std::errc() || parsed.ptr != end || !std::isfinite(value)) {
      fail("{}: label '{}' is not a finite number, must be one for regression",
           label_place(data, row), text);
    }
    targets.push_back(value);
  }
  return targets;
}

std::vector<float> multi_label_targets(const Dataset& data, const LabelSet& labels) {
  const size_t classes = size_t(labels.size());
  std::vector<float> targets(data.rows.size() * classes);
  for (size_t i = 0; i < data.rows.size(); ++i) {
    for_each_label(data.rows[i], [&](const std::string& label) {
      const auto id = labels.find(label);
      if (!id) fail_unseen(data, labels);
      targets[i * classes + size_t(*id)] = 1;
    });
  }
  return targets;
}

}  // namespace minim::text
