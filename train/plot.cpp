#include "train/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "core/error.h"
#include "train/page.h"

namespace minim::train {

namespace {

// The drawing area in a picture of 520 x 326, and below it the legend where there is one.
constexpr double width = 520, left = 72, right = 500, top = 32, bottom = 280, below = 326;
constexpr double line_height = 14, row = 18;  // of labels and of the legend
constexpr double marker_reach = 6.5;
constexpr size_t most_points = 1500;  // of a line

double position(const Axis& axis, double value) {
  const auto f = [&](double v) { return axis.logarithmic ? std::log10(v) : v; };
  return (f(value) - f(axis.low)) / (f(axis.high) - f(axis.low));
}

struct Tick {
  double value;
  std::string text;
};

// Round numbers inside the axis, steps of 1, 2 or 5 times a power of ten, with equally many
// decimals.
std::vector<Tick> ticks_of(const Axis& axis) {
  std::vector<Tick> ticks;
  if (axis.logarithmic) {
    const double decades = std::log10(axis.high / axis.low);
    for (double power = std::floor(std::log10(axis.low)); power <= std::log10(axis.high); ++power)
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double tick = digit * std::pow(10, power);
        const bool shown = decades < 2 || digit == 1;
        if (shown && tick >= axis.low * 0.999 && tick <= axis.high * 1.001)
          ticks.push_back({tick, fmt::format("{:.6g}", tick)});
      }
    return ticks;
  }
  const double raw = (axis.high - axis.low) / 5;
  const double exponent = std::floor(std::log10(raw)), power = std::pow(10, exponent);
  const double digit = raw / power <= 1 ? 1 : raw / power <= 2 ? 2 : raw / power <= 5 ? 5 : 10;
  const double step = digit * power;
  const int decimals = std::max(0, -int(exponent) - (digit == 10 ? 1 : 0));
  // Adding 0 makes 0 of -0.
  for (double i = std::ceil(axis.low / step - 1e-9) + 0.0; i * step <= axis.high + 1e-9 * step; ++i)
    ticks.push_back({i * step, decimals <= 5 && exponent < 5
                                   ? fmt::format("{:.{}f}", i * step, decimals)
                                   : fmt::format("{:.6g}", i * step)});
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

// Colours come round after six series; then each meets another marker and other dashes.
size_t colour_of(int series) {
  return size_t(series) % markers.size();
}
size_t form_of(int series) {
  return (size_t(series) + size_t(series) / markers.size()) % markers.size();
}

std::string marker_at(double x, double y, int series, double scale = 1) {
  return fmt::format("<g class='s{} mark' transform='translate({:.1f} {:.1f}){}'>{}</g>",
                     colour_of(series), x, y, scale == 1 ? "" : fmt::format(" scale({})", scale),
                     markers[form_of(series)]);
}

std::string classes_of(int series) {
  return fmt::format("s{} d{}", colour_of(series), form_of(series));
}

// About what a sans-serif font takes at 12 px; for keeping labels apart.
double width_of(const std::string& text) {
  double width = 0;
  for (const char c : text) {
    const bool narrow = std::string_view(" .,:;|!'()[]fijltI-").find(c) != std::string_view::npos;
    const bool wide = std::string_view("mwMW@%").find(c) != std::string_view::npos;
    const bool continues = (uint8_t(c) & 0xc0) == 0x80;
    width += continues ? 0 : narrow ? 4.2 : wide ? 10.5 : 7.2;
  }
  return width;
}

// A place for a label: where its text is anchored, and how.
struct Place {
  double x, baseline;
  const char* anchor;
};

// Beside, above and below what is named, then ever farther up and down.
std::vector<Place> places_around(double x, double y) {
  constexpr double aside = 10;
  std::vector<Place> places = {{x + aside, y + 4, "start"},
                               {x - aside, y + 4, "end"},
                               {x, y - aside, "middle"},
                               {x, y + aside + 9, "middle"}};
  for (double away = line_height; away <= 8 * line_height; away += line_height)
    for (const double shift : {away, -away}) {
      places.push_back({x + aside, y + 4 + shift, "start"});
      places.push_back({x - aside, y + 4 + shift, "end"});
    }
  return places;
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

// Every label at the first place around what it names where it covers nothing; if there is none,
// where it covers least.
std::string Plot::labels() const {
  std::string svg;
  std::vector<Box> taken = taken_;
  for (const Label& label : labels_) {
    const double length = width_of(label.text);
    const auto box_at = [&](const Place& place) {
      const std::string_view anchor = place.anchor;
      const double begin = place.x - (anchor == "end"      ? length
                                      : anchor == "middle" ? length / 2
                                                           : 0);
      return Box{begin, begin + length, place.baseline - 10, place.baseline + 3};
    };
    const auto covered = [&](const Box& box) {
      const bool outside =
          box.left < left + 2 || box.right > width || box.top < top || box.bottom > bottom - 1;
      return std::ranges::count_if(taken,
                                   [&](const Box& other) {
                                     return box.left < other.right && other.left < box.right &&
                                            box.top < other.bottom && other.top < box.bottom;
                                   }) +
             (outside ? 100 : 0);
    };
    const std::vector<Place> places = places_around(label.x, label.y);
    const Place best = *std::ranges::min_element(
        places, {}, [&](const Place& place) { return covered(box_at(place)); });
    taken.push_back(box_at(best));
    // A line leads to what is named from where that is not plain.
    if (std::abs(best.baseline - 4 - label.y) > 1.5 * line_height)
      svg += fmt::format("<path class='leader' d='M{:.1f} {:.1f}L{:.1f} {:.1f}'/>", label.x,
                         label.y, best.x - (best.x > label.x ? 2 : -2), best.baseline - 4);
    svg += fmt::format("<text class='name' x='{:.1f}' y='{:.1f}' text-anchor='{}'>{}</text>\n",
                       best.x, best.baseline, best.anchor, escape_html(label.text));
  }
  return svg;
}

// Tags beside the right edge, from top to bottom as what they name is, and no closer than a line.
std::string Plot::tags() const {
  std::vector<Label> sorted = tags_;
  std::ranges::stable_sort(sorted, {}, &Label::y);
  const double apart =
      std::min(line_height - 1, (bottom - top) / double(std::max<size_t>(sorted.size(), 1)));
  std::vector<double> places;
  for (const Label& tag : sorted)
    places.push_back(std::max(tag.y, places.empty() ? top : places.back() + apart));
  double lowest = bottom;
  for (auto place = places.rbegin(); place != places.rend(); ++place) {
    *place = std::min(*place, lowest);
    lowest = *place - apart;
  }
  std::string svg;
  for (size_t i = 0; i < sorted.size(); ++i)
    svg += fmt::format(
        "<path class='leader' d='M{:.1f} {:.1f}L{} {:.1f}'/><text class='name' x='{}' "
        "y='{:.1f}'>{}</text>\n",
        sorted[i].x, sorted[i].y, right + 2, places[i], right + 4, places[i] + 4,
        escape_html(sorted[i].text));
  return svg;
}

void Plot::tag(double x, double y, std::string label) {
  tags_.push_back({across(x), down(y), std::move(label)});
}

void Plot::key(int series, const std::string& label) {
  legend_.push_back({marker_at(14, 0, series), label});
}

void Plot::point(double x, double y, int series, std::string name, double spread) {
  const double px = across(x), py = down(y);
  if (spread > 0) {
    const double high = std::max(down(y + spread), top), low = std::min(down(y - spread), bottom);
    marks_ += fmt::format(
        "<path class='s{0} bar' d='M{1:.1f} {2:.1f}V{3:.1f}M{4:.1f} {2:.1f}h8M{4:.1f} "
        "{3:.1f}h8'/>\n",
        colour_of(series), px, high, low, px - 4);
    taken_.push_back({px - 1, px + 1, high, low});
  }
  marks_ += marker_at(px, py, series) + "\n";
  taken_.push_back({px - marker_reach, px + marker_reach, py - marker_reach, py + marker_reach});
  if (!name.empty()) labels_.push_back({px, py, std::move(name)});
}

void Plot::dot(double x, double y, int series) {
  marks_ += fmt::format("<circle class='s{} dot' cx='{:.1f}' cy='{:.1f}' r='2.4'/>\n",
                        colour_of(series), across(x), down(y));
}

std::string Plot::path(const std::vector<double>& x, const std::vector<double>& y) const {
  check(x.size() == y.size() && !x.empty(), "plot {}: a line of {} x and {} y", title_, x.size(),
        y.size());
  std::string path;
  const auto to = [&](double px, double py) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? 'M' : 'L', px, py);
  };
  if (x.size() <= most_points) {
    for (size_t i = 0; i < x.size(); ++i)
      to(across(x[i]), down(y[i]));
    return path;
  }
  // Of many points the ends of what falls on each half unit, which looks the same.
  for (size_t i = 0; i < x.size();) {
    const double column = std::floor(2 * across(x[i]));
    double low = y[i], high = y[i];
    const double first = y[i];
    for (; i < x.size() && std::floor(2 * across(x[i])) == column; ++i) {
      low = std::min(low, y[i]);
      high = std::max(high, y[i]);
    }
    to(column / 2, down(first - low < high - first ? low : high));
    to(column / 2, down(first - low < high - first ? high : low));
  }
  return path;
}

void Plot::line(const std::vector<double>& x, const std::vector<double>& y, int series,
                const std::string& name, bool marked) {
  marks_ += fmt::format("<path class='{} curve' d='{}'/>\n", classes_of(series), path(x, y));
  for (size_t i = 0; i < x.size() && marked; ++i)
    marks_ += marker_at(across(x[i]), down(y[i]), series, 0.6) + "\n";
  if (!name.empty())
    legend_.push_back({fmt::format("<path class='{} curve' d='M0 0h28'/>{}", classes_of(series),
                                   marked ? marker_at(14, 0, series, 0.6) : ""),
                       name});
}

void Plot::band(const std::vector<double>& x, const std::vector<double>& low,
                const std::vector<double>& high, int series) {
  std::vector<double> around_x = x, around_y = high;
  around_x.insert(around_x.end(), x.rbegin(), x.rend());
  around_y.insert(around_y.end(), low.rbegin(), low.rend());
  bands_ += fmt::format("<path class='s{} band' d='{}Z'/>\n", colour_of(series),
                        path(around_x, around_y));
}

void Plot::guide(const std::vector<double>& x, const std::vector<double>& y, std::string name) {
  guides_ += fmt::format("<path class='guide' d='{}'/>\n", path(x, y));
  if (name.empty()) return;
  const double px = across(x.back()) - 2, py = down(y.back()) - 5;
  guides_ += fmt::format("<text class='quiet' x='{:.1f}' y='{:.1f}' text-anchor='end'>{}</text>\n",
                         px, py, escape_html(name));
  taken_.push_back({px - width_of(name), px, py - 10, py + 3});
}

std::string Plot::axes() const {
  std::string svg;
  for (const Tick& tick : ticks_of(x_))
    svg += fmt::format(
        "<path class='grid' d='M{0:.1f} {1}V{2}'/><text class='tick' x='{0:.1f}' y='{3}' "
        "text-anchor='middle'>{4}</text>\n",
        across(tick.value), top, bottom, bottom + 17, tick.text);
  for (const Tick& tick : ticks_of(y_))
    svg += fmt::format(
        "<path class='grid' d='M{0} {1:.1f}H{2}'/><text class='tick' x='{3}' y='{4:.1f}' "
        "text-anchor='end'>{5}</text>\n",
        left, down(tick.value), right, left - 7, down(tick.value) + 4, tick.text);
  return svg + fmt::format(
                   "<path class='axis' d='M{0} {1}V{2}H{3}'/>\n"
                   "<text class='axis-label' x='{4}' y='{5}' text-anchor='middle'>{6}</text>\n"
                   "<text class='axis-label' transform='translate(13 {7}) rotate(-90)' "
                   "text-anchor='middle'>{8}</text>\n",
                   left, top, bottom, right, (left + right) / 2, bottom + 36, escape_html(x_.label),
                   (top + bottom) / 2, escape_html(y_.label));
}

std::string Plot::svg() const {
  // The legend in rows, its columns as wide as the longest name needs.
  constexpr double sample = 34, apart = 13;
  constexpr size_t longest = 60;  // characters
  double column = 0;
  for (const Key& key : legend_)
    column = std::max(column, sample + width_of(shortened(key.text, longest)) + apart);
  const size_t columns = legend_.empty() ? 1 : std::max<size_t>(1, size_t((width - left) / column));
  std::string legend;
  for (size_t i = 0; i < legend_.size(); ++i) {
    const size_t line = i / columns, place = i % columns;
    legend +=
        fmt::format("<g transform='translate({:.1f} {:.1f})'>{}<text x='{}' y='4'>{}</text></g>\n",
                    left + column * double(place), below + 12 + row * double(line),
                    legend_[i].sample, sample, escape_html(shortened(legend_[i].text, longest)));
  }
  const size_t rows = (legend_.size() + columns - 1) / columns;
  const double height = below + (rows == 0 ? 0 : 4 + row * double(rows));
  const std::string head = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' class='plot' viewBox='0 0 {} {}' role='img' "
      "aria-label='{}'>\n<text class='title' x='{}' y='16'>{}</text>\n",
      width, height, escape_html(title_), left, escape_html(title_));
  return head + axes() + guides_ + bands_ + marks_ + tags() + labels() + legend + "</svg>\n";
}

std::string series_sample(int series) {
  return fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' class='plot sample' viewBox='0 0 40 14' "
      "aria-hidden='true'><path class='{} curve' d='M0 7h40'/>{}</svg>",
      classes_of(series), marker_at(20, 7, series));
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
