#include "train/plot.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/error.h"

namespace minim::train {

namespace {

// The drawing area in a picture of 640 x 400; labels of points may reach beyond its right edge.
constexpr double width = 640, height = 400, left = 74, right = 610, top = 44, bottom = 346;
constexpr double letter = 6.3;  // mean width at 12 px; for keeping labels apart

double position(const Axis& axis, double value) {
  const auto f = [&](double v) { return axis.logarithmic ? std::log10(v) : v; };
  return (f(value) - f(axis.low)) / (f(axis.high) - f(axis.low));
}

// Round numbers inside the axis: steps of 1, 2 or 5 times a power of ten.
std::vector<double> ticks_of(const Axis& axis) {
  std::vector<double> ticks;
  if (axis.logarithmic) {
    const double decades = std::log10(axis.high / axis.low);
    for (double power = std::floor(std::log10(axis.low)); power <= std::log10(axis.high); ++power)
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double tick = digit * std::pow(10, power);
        const bool shown = decades < 2 || digit == 1;
        if (shown && tick >= axis.low * 0.999 && tick <= axis.high * 1.001) ticks.push_back(tick);
      }
    return ticks;
  }
  const double raw = (axis.high - axis.low) / 5;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  const double digit = raw / power <= 1 ? 1 : raw / power <= 2 ? 2 : raw / power <= 5 ? 5 : 10;
  const double step = digit * power;
  // Adding 0 makes 0 of -0.
  for (double i = std::ceil(axis.low / step - 1e-9) + 0.0; i * step <= axis.high + 1e-9 * step; ++i)
    ticks.push_back(i * step);
  return ticks;
}

constexpr std::array markers = {
    "<circle r='5'/>",
    "<rect x='-5' y='-5' width='10' height='10'/>",
    "<path d='M0-6.5L6 4.5H-6z'/>",
    "<path d='M0-6.5L6.5 0L0 6.5L-6.5 0z'/>",
    "<path d='M0 6.5L6-4.5H-6z'/>",
    "<path d='M-2-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z'/>",
};

size_t style_of(int series) {
  return size_t(series) % markers.size();
}

}  // namespace

Axis axis_around(std::string label, const std::vector<double>& values, bool logarithmic) {
  check(!values.empty(), "axis {}: there is nothing to show", label);
  auto [low, high] = std::ranges::minmax(values);
  if (logarithmic) return {std::move(label), low / 1.6, high * 1.6, true};
  const double room = high > low ? 0.15 * (high - low) : std::max(0.1 * std::abs(high), 1e-3);
  const bool near_zero = low >= 0 && low - room < 0.2 * high;
  return {std::move(label), near_zero ? 0 : low - room, high + room, false};
}

Plot::Plot(std::string title, Axis x, Axis y)
    : title_(std::move(title)), x_(std::move(x)), y_(std::move(y)) {
  for (const Axis& axis : {x_, y_})
    check(axis.high > axis.low && (!axis.logarithmic || axis.low > 0),
          "plot {}: axis {} from {} to {} is empty", title_, axis.label, axis.low, axis.high);
}

double Plot::across(double x) const {
  return left + (right - left) * position(x_, x);
}

double Plot::down(double y) const {
  return bottom - (bottom - top) * position(y_, y);
}

// Puts a label right of a place or, where the picture ends or another label stands, left of it or
// further down.
void Plot::label(double x, double y, const std::string& text) {
  if (text.empty()) return;
  const double length = letter * double(text.size());
  const bool flips = x + 10 + length > width;
  const double begin = flips ? x - 10 - length : x + 10;
  double baseline = y + 4;
  const auto collides = [&](const std::vector<double>& other) {
    return begin < other[1] && other[0] < begin + length && std::abs(baseline - other[2]) < 14;
  };
  while (std::ranges::any_of(taken_, collides) && baseline < bottom)
    baseline += 14;
  taken_.push_back({begin, begin + length, baseline});
  labels_ +=
      fmt::format("<text class='name' x='{:.1f}' y='{:.1f}' text-anchor='{}'>{}</text>\n",
                  flips ? x - 10 : x + 10, baseline, flips ? "end" : "start", escape_html(text));
}

void Plot::point(double x, double y, int series, std::string name, double spread) {
  const double px = across(x), py = down(y);
  if (spread > 0) {
    const double high = std::max(down(y + spread), top), low = std::min(down(y - spread), bottom);
    marks_ += fmt::format(
        "<path class='s{0} bar' d='M{1:.1f} {2:.1f}V{3:.1f}M{4:.1f} {2:.1f}h8M{4:.1f} "
        "{3:.1f}h8'/>\n",
        style_of(series), px, high, low, px - 4);
  }
  marks_ += fmt::format("<g class='s{} mark' transform='translate({:.1f} {:.1f})'>{}</g>\n",
                        style_of(series), px, py, markers[style_of(series)]);
  label(px, py, name);
}

void Plot::dot(double x, double y, int series) {
  marks_ += fmt::format("<circle class='s{} dot' cx='{:.1f}' cy='{:.1f}' r='2.4'/>\n",
                        style_of(series), across(x), down(y));
}

std::string Plot::path(const std::vector<double>& x, const std::vector<double>& y) const {
  check(x.size() == y.size() && !x.empty(), "plot {}: a line of {} x and {} y", title_, x.size(),
        y.size());
  std::string path;
  for (size_t i = 0; i < x.size(); ++i)
    path += fmt::format("{}{:.1f} {:.1f}", i == 0 ? 'M' : 'L', across(x[i]), down(y[i]));
  return path;
}

void Plot::line(const std::vector<double>& x, const std::vector<double>& y, int series,
                std::string name) {
  marks_ += fmt::format("<path class='s{} curve' d='{}'/>\n", style_of(series), path(x, y));
  if (name.empty()) return;
  labels_ +=
      fmt::format("<path class='s{} curve' d='M{:.1f} 32h28'/><text x='{:.1f}' y='36'>{}</text>\n",
                  style_of(series), legend_, legend_ + 34, escape_html(name));
  legend_ += 34 + letter * double(name.size()) + 24;
}

void Plot::guide(const std::vector<double>& x, const std::vector<double>& y, std::string name) {
  marks_ = fmt::format("<path class='guide' d='{}'/>\n", path(x, y)) + marks_;
  if (name.empty()) return;
  labels_ +=
      fmt::format("<text class='quiet' x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>\n",
                  across(x[0]), down(y[0]) - 6, escape_html(name));
}

std::string Plot::svg() const {
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' class='plot' viewBox='0 0 {} {}' role='img' "
      "aria-label='{}'>\n<text class='title' x='{}' y='16'>{}</text>\n",
      width, height, escape_html(title_), left, escape_html(title_));
  for (const double tick : ticks_of(x_))
    svg += fmt::format(
        "<path class='grid' d='M{0:.1f} {1}V{2}'/><text class='tick' x='{0:.1f}' y='{3}' "
        "text-anchor='middle'>{4:.6g}</text>\n",
        across(tick), top, bottom, bottom + 18, tick);
  for (const double tick : ticks_of(y_))
    svg += fmt::format(
        "<path class='grid' d='M{0} {1:.1f}H{2}'/><text class='tick' x='{3}' y='{4:.1f}' "
        "text-anchor='end'>{5:.6g}</text>\n",
        left, down(tick), right, left - 8, down(tick) + 4, tick);
  svg += fmt::format(
      "<path class='axis' d='M{0} {1}V{2}H{3}'/>\n"
      "<text class='axis-label' x='{4}' y='{5}' text-anchor='middle'>{6}</text>\n"
      "<text class='axis-label' transform='translate(14 {7}) rotate(-90)' "
      "text-anchor='middle'>{8}</text>\n",
      left, top, bottom, right, (left + right) / 2, bottom + 42, escape_html(x_.label),
      (top + bottom) / 2, escape_html(y_.label));
  return svg + marks_ + labels_ + "</svg>\n";
}

std::string plot_style() {
  // Okabe and Ito's colours, which those who see fewer tell apart too; lighter ones on dark paper.
  return R"(:root { --paper: #fff; --ink: #1c1e21; --s0: #0072b2; --s1: #d55e00; --s2: #009e73;
  --s3: #b5578f; --s4: #b8860b; --s5: #56b4e9; }
@media (prefers-color-scheme: dark) { :root { --paper: #18191a; --ink: #e4e6eb; --s0: #4aa3df;
  --s1: #f08a3c; --s2: #2cc295; --s3: #e39cc4; --s4: #e0b040; --s5: #9bd5f7; } }
.plot { width: 100%; max-width: 720px; font: 12px system-ui, sans-serif; }
.plot text { fill: currentColor; }
.plot .name { paint-order: stroke; stroke: var(--paper); stroke-width: 3px; }
.plot .title { font-size: 14px; font-weight: 600; }
.plot .tick, .plot .quiet { opacity: 0.65; }
.plot .grid { stroke: currentColor; opacity: 0.12; }
.plot .axis { stroke: currentColor; fill: none; }
.plot .guide { stroke: currentColor; opacity: 0.4; fill: none; stroke-dasharray: 4 3; }
.plot .s0 { fill: var(--s0); stroke: var(--s0); }
.plot .s1 { fill: var(--s1); stroke: var(--s1); }
.plot .s2 { fill: var(--s2); stroke: var(--s2); }
.plot .s3 { fill: var(--s3); stroke: var(--s3); }
.plot .s4 { fill: var(--s4); stroke: var(--s4); }
.plot .s5 { fill: var(--s5); stroke: var(--s5); }
.plot .curve, .plot .bar { fill: none; stroke-width: 1.8; }
.plot .dot { stroke: none; fill-opacity: 0.55; }
.plot .curve.s1 { stroke-dasharray: 7 3; }
.plot .curve.s2 { stroke-dasharray: 2 2.5; }
.plot .curve.s3 { stroke-dasharray: 9 3 2 3; }
.plot .curve.s4 { stroke-dasharray: 12 4; }
.plot .curve.s5 { stroke-dasharray: 4 2; }
)";
}

std::string escape_html(const std::string& text) {
  std::string escaped;
  for (const char c : text)
    switch (c) {
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '&':
        escaped += "&amp;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      default:
        escaped += c;
    }
  return escaped;
}

}  // namespace minim::train
