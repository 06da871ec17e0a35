#include "text/normalizer.h"

#include <algorithm>

#include "text/unicode.h"

namespace minim::text {
namespace {

struct Decomposed {
  NormalizedChar value;
  int combining;  // canonical combining class
  bool inserted;  // a further code point of the character before it
};

// Puts a run of marks that follow one another into canonical order. The library hands out sources
// by position: a mark that is a character of its own takes the next source of the run, an inserted
// one the source given out last.
void order_marks(Decomposed* first, Decomposed* last, uint32_t source_before) {
  const auto by_class = [](const Decomposed& a, const Decomposed& b) {
    return a.combining < b.combining;
  };
  if (std::is_sorted(first, last, by_class)) return;
  std::vector<uint32_t> sources;
  for (const Decomposed* mark = first; mark != last; ++mark)
    if (!mark->inserted) sources.push_back(mark->value.source);
  std::stable_sort(first, last, by_class);
  size_t next = 0;
  for (Decomposed* mark = first; mark != last; ++mark) {
    if (!mark->inserted) source_before = sources[next++];
    mark->value.source = source_before;
  }
}

void clean(std::vector<NormalizedChar>& chars) {
  size_t kept = 0;
  for (NormalizedChar c : chars) {
    const uint8_t bits = char_class(c.code_point);
    if ((bits & control_class) || c.code_point == 0xFFFD) continue;
    if (bits & space_class) c.code_point = ' ';
    chars[kept++] = c;
  }
  chars.resize(kept);
}

void surround_ideographs(std::vector<NormalizedChar>& chars) {
  const auto is_ideograph = [](const NormalizedChar& c) {
    return char_class(c.code_point) & ideograph_class;
  };
  const auto count = std::count_if(chars.begin(), chars.end(), is_ideograph);
  if (count == 0) return;
  // From the end, so that nothing is overwritten before it is read.
  size_t from = chars.size();
  chars.resize(chars.size() + 2 * size_t(count));
  size_t to = chars.size();
  while (from > 0) {
    const NormalizedChar c = chars[--from];
    const bool ideograph = is_ideograph(c);
    if (ideograph) chars[--to] = {' ', c.source};
    chars[--to] = c;
    if (ideograph) chars[--to] = {' ', c.source};
  }
}

void drop_marks(std::vector<NormalizedChar>& chars) {
  std::erase_if(chars,
                [](const NormalizedChar& c) { return char_class(c.code_point) & mark_class; });
}

void lower(std::vector<NormalizedChar>& chars) {
  std::vector<NormalizedChar> longer;  // from the first mapping to two code points on
  for (size_t i = 0; i < chars.size(); ++i) {
    char32_t mapped[2];
    const int length = lower_case(chars[i].code_point, mapped);
    chars[i].code_point = mapped[0];
    if (length == 2 && longer.empty()) longer.assign(chars.begin(), chars.begin() + ptrdiff_t(i));
    if (length == 1 && longer.empty()) continue;
    for (int k = 0; k < length; ++k)
      longer.push_back({mapped[k], chars[i].source});
  }
  if (!longer.empty()) chars = std::move(longer);
}

}  // namespace

void to_nfd(std::vector<NormalizedChar>& chars) {
  const auto unchanged = [](const NormalizedChar& c) {
    char32_t to[4];
    return c.code_point < 0xC0 || (combining_class(c.code_point) == 0 &&
                                   decompose(c.code_point, to) == 1 && to[0] == c.code_point);
  };
  if (std::all_of(chars.begin(), chars.end(), unchanged)) return;
  std::vector<Decomposed> decomposed;
  decomposed.reserve(chars.size() * 2);
  for (const NormalizedChar c : chars) {
    char32_t to[4];
    const int length = decompose(c.code_point, to);
    for (int i = 0; i < length; ++i)
      decomposed.push_back({{to[i], c.source}, combining_class(to[i]), i > 0});
  }
  for (size_t i = 0; i < decomposed.size();) {
    if (decomposed[i].combining == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < decomposed.size() && decomposed[end].combining != 0)
      ++end;
    const uint32_t before = decomposed[i > 0 ? i - 1 : 0].value.source;
    order_marks(&decomposed[i], decomposed.data() + end, before);
    i = end;
  }
  chars.clear();
  for (const Decomposed& c : decomposed)
    chars.push_back(c.value);
}

void normalize(const NormalizerOptions& options, std::vector<NormalizedChar>& chars) {
  if (options.clean_text) clean(chars);
  if (options.handle_chinese_chars) surround_ideographs(chars);
  if (options.strips_accents()) {
    to_nfd(chars);
    drop_marks(chars);
  }
  if (options.lowercase) lower(chars);
}

Boundary boundary_of(char32_t c) {
  const uint8_t bits = char_class(c);
  if (bits & space_class) return Boundary::space;
  return bits & punctuation_class ? Boundary::punctuation : Boundary::none;
}

}  // namespace minim::text
