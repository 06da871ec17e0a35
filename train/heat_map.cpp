#include "train/heat_map.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "core/error.h"
#include "train/page.h"
#include "train/plot.h"
#include "train/table.h"

namespace minim::train {

namespace {

constexpr size_t longest_name = 34;  // code points; longer ones are cut

}  // namespace

std::string heat_map_svg(const ConfusionMatrix& matrix, const std::vector<std::string>& labels) {
  const int64_t n = matrix.classes();
  check(int64_t(labels.size()) == n, "heat map: {} labels for {} classes", labels.size(), n);
  const double cell = std::clamp(880.0 / double(n), 11.0, 44.0);
  const double letters = std::clamp(cell * 0.82, 9.0, 12.0);
  double longest = 0;
  for (const std::string& label : labels)
    longest = std::max(longest, double(code_points(shortened(label, longest_name))));
  const double margin = std::max(90.0, 0.58 * letters * longest + 10);
  const double side = cell * double(n);
  // Names above lean to the right where there is room for that, which the last one needs too.
  const bool leans = cell >= 24;
  const double width = margin + side + (leans ? 0.6 * margin : 8), height = margin + side + 8;
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' class='heat' viewBox='0 0 {0:.0f} {1:.0f}' "
      "width='{0:.0f}' role='img' aria-label='confusion matrix' font-size='{2:.1f}'>\n"
      "<text class='side' x='{3:.1f}' y='{4:.1f}' text-anchor='end'>label ↓ predicted →</text>\n",
      width, height, letters, margin - 6, margin - 6);
  for (int64_t k = 0; k < n; ++k) {
    const double middle = margin + cell * (double(k) + 0.5);
    const std::string name = escape_html(shortened(labels[size_t(k)], longest_name));
    svg += fmt::format(
        "<text x='{0:.1f}' y='{1:.1f}' text-anchor='end'>{2}</text>"
        "<text transform='translate({1:.1f} {0:.1f}) rotate({3})'>{2}</text>\n",
        margin - 6, middle + 0.35 * letters, name, leans ? -50 : -90);
  }
  // A line at every fifth class leads the eye to its names.
  for (int64_t k = 0; k <= n; ++k)
    if (n <= 20 || k % 5 == 0 || k == n)
      svg +=
          fmt::format("<path class='line' d='M{0:.1f} {2:.1f}V{3:.1f}M{2:.1f} {0:.1f}H{3:.1f}'/>\n",
                      margin + cell * double(k), 0, margin, margin + side);
  for (int64_t label = 0; label < n; ++label) {
    const auto of_label = double(std::max<int64_t>(matrix.of_class(label).support(), 1));
    for (int64_t guess = 0; guess < n; ++guess) {
      const int64_t count = matrix.count(label, guess);
      if (count == 0) continue;
      const bool right = label == guess;
      const double share = double(count) / of_label;
      // A single wrong row of many is still to be seen.
      const double strength = right ? 0.08 + 0.92 * share : std::min(1.0, 0.25 + 1.5 * share);
      const double x = margin + cell * double(guess), y = margin + cell * double(label);
      svg += fmt::format(
          "<g><title>{}{}: {} of {} ({:.0f} %)</title><rect class='{}' x='{:.1f}' y='{:.1f}' "
          "width='{:.1f}' height='{:.1f}' fill-opacity='{:.2f}'/>",
          escape_html(labels[size_t(label)]),
          right ? "" : " → " + escape_html(labels[size_t(guess)]), count, int64_t(of_label),
          100 * share, right ? "right" : "wrong", x + 0.5, y + 0.5, cell - 1, cell - 1, strength);
      if (cell >= 24)
        svg += fmt::format("<text class='{}' x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>",
                           strength > 0.55 ? "on" : "off", x + cell / 2, y + cell / 2 + 4, count);
      else if (!right)
        svg += fmt::format("<circle class='spot' cx='{:.1f}' cy='{:.1f}' r='1.3'/>", x + cell / 2,
                           y + cell / 2);
      svg += "</g>\n";
    }
  }
  return svg + "</svg>\n";
}

std::string heat_map_style() {
  return R"(.heat { font-family: system-ui, sans-serif; display: block; max-width: none; }
.heat text { fill: currentColor; } .heat .side { font-style: italic; opacity: 0.7; }
.heat .line { stroke: currentColor; opacity: 0.15; }
.heat .right { fill: #0072b2; } .heat .wrong { fill: #d55e00; }
.heat .on { fill: #fff; } .heat .spot { fill: currentColor; }
.heat g:hover rect { stroke: currentColor; stroke-width: 1.5; }
)";
}

}  // namespace minim::train
