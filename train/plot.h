#pragma once

#include <string>
#include <vector>

namespace minim::train {

// A direction of a plot: its label with the unit, its ends, and whether it counts in powers of ten.
struct Axis {
  std::string label;
  double low = 0, high = 1;
  bool logarithmic = false;
};

// Ends for an axis that shows all of the values, with some room; at 0 where they are near it.
Axis axis_around(std::string label, const std::vector<double>& values, bool logarithmic = false);

// A diagram as SVG, 520 wide, in the colours of the page that it stands in (light or dark). Series
// differ in marker and dashes as well as colour, 36 of them in both together, so that it can be
// read in grey. Labels find a place beside what they name where they cover nothing else.
class Plot {
 public:
  Plot(std::string title, Axis x, Axis y);

  // A marker with its name, if it has one, beside it and, where `spread` > 0, a bar of that length
  // up and down. Points of a series number share marker and colour.
  void point(double x, double y, int series, std::string label, double spread = 0);
  // A small round mark without a name, for where there are many.
  void dot(double x, double y, int series);
  // A line through points (x[i], y[i]), with its name, if it has one, in the legend below; with
  // small markers at its points where that is asked for.
  void line(const std::vector<double>& x, const std::vector<double>& y, int series,
            const std::string& label, bool marked = false);
  // The area between low[i] and high[i] at x[i], behind the lines.
  void band(const std::vector<double>& x, const std::vector<double>& low,
            const std::vector<double>& high, int series);
  // A short name, such as a number, at the right edge for the end of a line.
  void tag(double x, double y, std::string label);
  // A series' marker with its name in the legend below.
  void key(int series, const std::string& label);
  // A thin grey line for orientation, with its name, if it has one, above its last point.
  void guide(const std::vector<double>& x, const std::vector<double>& y, std::string label);

  std::string svg() const;

 private:
  double across(double x) const;
  double down(double y) const;
  std::string path(const std::vector<double>& x, const std::vector<double>& y) const;
  std::string labels() const;
  std::string tags() const;
  std::string axes() const;

  // Of the picture, in its own units.
  struct Box {
    double left, right, top, bottom;
  };
  struct Label {
    double x, y;  // of what it names
    std::string text;
  };
  struct Key {
    std::string sample;  // drawn around (0, 0), 28 wide
    std::string text;
  };

  std::string title_;
  Axis x_, y_;
  std::string bands_, marks_, guides_;
  std::vector<Label> labels_, tags_;
  std::vector<Box> taken_;  // by markers and the labels of guides
  std::vector<Key> legend_;
};

// A small picture of a series' line and marker, for a table beside plots.
std::string series_sample(int series);

// The style sheet that the class names in plots refer to; once per page.
std::string plot_style();

// "<", ">", "&" and quotes as HTML writes them.
std::string escape_html(const std::string& text);

}  // namespace minim::train
