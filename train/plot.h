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

// A diagram as SVG, 640 x 400, in the colours of the page that it stands in (light or dark). Series
// differ in marker or dashes as well as colour, and points are labelled where they are, so that it
// can be read in grey.
class Plot {
 public:
  Plot(std::string title, Axis x, Axis y);

  // A marker with its name, if it has one, beside it and, where `spread` > 0, a bar of that length
  // up and down. Points of a series number share marker and colour.
  void point(double x, double y, int series, std::string label, double spread = 0);
  // A small round mark without a name, for where there are many.
  void dot(double x, double y, int series);
  // A line through points (x[i], y[i]), with its name, if it has one, under the title.
  void line(const std::vector<double>& x, const std::vector<double>& y, int series,
            std::string label);
  // A thin grey line for orientation, with its name, if it has one, above its first point.
  void guide(const std::vector<double>& x, const std::vector<double>& y, std::string label);

  std::string svg() const;

 private:
  double across(double x) const;
  double down(double y) const;
  std::string path(const std::vector<double>& x, const std::vector<double>& y) const;
  void label(double x, double y, const std::string& text);

  std::string title_;
  Axis x_, y_;
  std::string marks_, labels_;
  double legend_ = 74;                      // where the next name of a line begins
  std::vector<std::vector<double>> taken_;  // left, right and baseline of the labels so far
};

// The style sheet that the class names in plots refer to; once per page.
std::string plot_style();

// "<", ">", "&" and quotes as HTML writes them.
std::string escape_html(const std::string& text);

}  // namespace minim::train
