#include "text/truncation.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace minim::text {

std::string_view name_of(Truncation truncation) {
  constexpr std::string_view names[] = {"longest_first", "only_first", "only_second",
                                        "do_not_truncate"};
  return names[size_t(truncation)];
}

std::string_view name_of(Side side) {
  return side == Side::right ? "right" : "left";
}

KeptTokens truncate(int64_t first, int64_t second, int64_t budget, Truncation truncation) {
  const bool pair = second >= 0;
  const int64_t total = first + (pair ? second : 0);
  if (truncation == Truncation::do_not_truncate || total <= budget) return {first, second};
  if (budget == 0) return {0, pair ? 0 : second};
  const int64_t excess = total - budget;
  if (truncation == Truncation::longest_first) {
    if (!pair) return {budget, second};
    int64_t shorter = first, longer = second;
    const bool swapped = shorter > longer;
    if (swapped) std::swap(shorter, longer);
    longer = shorter > budget ? shorter : std::max(shorter, budget - shorter);
    if (shorter + longer > budget) {
      shorter = budget / 2;
      longer = shorter + budget % 2;
    }
    return swapped ? KeptTokens{longer, shorter} : KeptTokens{shorter, longer};
  }
  const bool cuts_first = truncation == Truncation::only_first;
  check(cuts_first || pair, "truncation: only_second was asked for, but there is no second text");
  int64_t& target = cuts_first ? first : second;
  check(target > excess,
        "truncation: {} must remove {} tokens, but the {} text has only {}; use longest_first",
        name_of(truncation), excess, cuts_first ? "first" : "second", target);
  target -= excess;
  return {first, second};
}

}  // namespace minim::text
