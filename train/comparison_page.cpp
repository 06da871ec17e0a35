#include "train/comparison_page.h"

#include <algorithm>

#include <fmt/format.h>

#include "train/page.h"
#include "train/plot.h"
#include "train/table.h"

namespace minim::train {

namespace {

using Rows = std::vector<std::vector<std::string>>;

// More experiments than that have their legend in the table alone, and no bands.
constexpr size_t most_in_legend = 8;
// More, or longer names, are labelled by their numbers in the table.
constexpr size_t most_named = 6, longest_name = 20;
// Curves of more points are lines alone.
constexpr size_t most_marked = 20;

// How experiments are called in plots.
class Names {
 public:
  explicit Names(const Comparison& comparison) : groups_(comparison.groups) {
    numbered_ = groups_.size() > most_named || std::ranges::any_of(groups_, [](const RunGroup& g) {
                  return code_points(g.name) > longest_name;
                });
  }
  bool numbered() const { return numbered_; }
  bool in_legend() const { return groups_.size() <= most_in_legend; }
  std::string in_full(size_t g) const {
    return numbered_ ? fmt::format("{} {}", g + 1, groups_[g].name) : groups_[g].name;
  }
  std::string label(size_t g) const {
    return numbered_ ? fmt::format("{}", g + 1) : groups_[g].name;
  }
  std::string with_sample(size_t g) const {
    return series_sample(int(g)) + escape_html(in_full(g));
  }

 private:
  const std::vector<RunGroup>& groups_;
  bool numbered_ = false;
};

// Ends for scores; shares end at 1.
Axis score_axis(const std::string& metric, const std::string& label,
                const std::vector<double>& values) {
  Axis axis = axis_around(label, values);
  if (is_share(metric)) {
    axis.low = std::max(axis.low, 0.0);
    axis.high = std::min(axis.high, 1.0);
  }
  return axis;
}

// The table of results; scores without a spread keep its place free, so that digits align.
std::string results_html(const Comparison& comparison, const Names& names) {
  Rows rows = comparison.rows();
  const Rows::value_type units = {"state (MiB)", "state predicted (MiB)", "peak (MiB)",
                                  "optimizer (ms/step)", "training (s)"};
  std::ranges::copy(units, rows[0].end() - ptrdiff_t(units.size()));
  rows[0][0] = "experiment";
  for (size_t g = 0; g < comparison.groups.size(); ++g)
    for (size_t c = 0; c < rows[g + 1].size(); ++c) {
      std::string& cell = rows[g + 1][c];
      const size_t digits = cell.find_last_not_of(' ') + 1;
      if (c == 0)
        cell = names.with_sample(g);
      else if (digits < cell.size())
        cell = cell.substr(0, digits) + "<span class='unseen'> ± 0.0000</span>";
    }
  return table_of_html(rows, "named") +
         "<p class='small'>± is the standard deviation over seeds. State is what the optimizer "
         "keeps; peak is that of all tensors at once, weights and data included. Times are means "
         "over runs.</p>\n";
}

std::string findings_html(const Comparison& comparison, const Names& names) {
  const RunGroup& base = comparison.groups[0];
  Rows rows = {{"experiment", "difference from " + escape_html(names.label(0)), "95 % interval",
                "p", "runs", "finding"}};
  for (size_t g = 1; g < comparison.groups.size(); ++g) {
    const Difference d = comparison.difference(g);
    const size_t n = comparison.groups[g].runs.size();
    rows.push_back(
        {names.with_sample(g), fmt::format("{:+.4f}", d.mean), "", "",
         d.is_paired ? fmt::format("{} pairs", n) : fmt::format("{} and {}", n, base.runs.size()),
         d.is_testable ? d.verdict() : "needs two runs of each"});
    if (!d.is_testable) continue;
    rows.back()[2] = fmt::format("{:+.4f} to {:+.4f}", d.low, d.high);
    rows.back()[3] = d.p < 0.001 ? "&lt; 0.001" : fmt::format("{:.3f}", d.p);
  }
  return fmt::format(
      "<h2>What the noise allows to say about {}</h2>\n{}"
      "<p class='small'>By t-tests, of pairs where both have the same seeds, else Welch's; "
      "intervals and p allow for the number of comparisons (Bonferroni). Where the interval holds "
      "0 no difference is shown; its width tells how large a one these runs could have missed."
      "</p>\n",
      escape_html(comparison.metrics[0]), table_of_html(rows, "named"));
}

// One logged value over the epochs, for all experiments that have it; "" for none.
std::string curves_of(const Comparison& comparison, const Names& names, const std::string& logged,
                      const std::string& title, const std::string& metric,
                      const std::string& label) {
  std::vector<Curve> curves;
  std::vector<double> epochs, values;
  for (const RunGroup& group : comparison.groups) {
    curves.push_back(curve_of(group, logged));
    const Curve& curve = curves.back();
    epochs.insert(epochs.end(), curve.epochs.begin(), curve.epochs.end());
    for (const auto* side : {&curve.low, &curve.high})
      values.insert(values.end(), side->begin(), side->end());
  }
  if (epochs.empty()) return "";
  const double room = names.numbered() ? 1.04 : 1.0;
  Plot plot(title, {"epoch", 0, std::max(room * std::ranges::max(epochs), 1e-9)},
            score_axis(metric, label, values));
  for (size_t g = 0; g < curves.size(); ++g) {
    const Curve& c = curves[g];
    if (c.epochs.empty()) continue;
    if (c.runs > 1 && names.in_legend()) plot.band(c.epochs, c.low, c.high, int(g));
    const std::string legend = fmt::format("{} (n = {})", names.in_full(g), c.runs);
    plot.line(c.epochs, c.mean, int(g), names.in_legend() ? legend : "",
              c.epochs.size() <= most_marked);
    if (names.numbered()) plot.tag(c.epochs.back(), c.mean.back(), names.label(g));
  }
  return plot.svg();
}

std::string curves_html(const Comparison& comparison, const Names& names) {
  const std::string& metric = comparison.metrics[0];
  std::string html;
  if (metric != "loss")
    html +=
        curves_of(comparison, names, "eval_" + metric, metric + " in evaluation", metric, metric);
  html += curves_of(comparison, names, "eval_loss", "loss in evaluation", "loss",
                    "loss (mean per row)") +
          curves_of(comparison, names, "loss", "loss in training", "loss",
                    "loss (mean since the log entry before)");
  if (html.empty()) return "<p class='small'>The folders have no log to draw curves of.</p>\n";
  const char* bands =
      names.in_legend() ? "bands from the lowest to the highest of them. A curve"
                        : "n as in the table; more than eight bands would hide each other. A curve";
  return fmt::format(
      "<h2>Curves</h2>\n<div class='plots'>\n{}</div>\n<p class='small'>Lines: means over the n "
      "runs of an experiment; {} ends with the first of its runs that does.</p>\n",
      html, bands);
}

// The score of each experiment over bytes of its memory.
std::string score_over(const Comparison& comparison, const Names& names, const std::string& title,
                       const std::string& label, double (*mib)(const RunGroup&), bool logarithmic) {
  const std::string& metric = comparison.metrics[0];
  std::vector<double> sizes, places, scores;
  for (const RunGroup& group : comparison.groups) {
    const Summary s = group.summary(metric);
    const double spread = s.count < 2 ? 0 : s.sd;
    sizes.push_back(mib(group));
    if (sizes.back() > 0) places.push_back(sizes.back());
    scores.push_back(s.mean - spread);
    scores.push_back(s.mean + spread);
  }
  // What keeps nothing has no place on a logarithmic axis; it is put below all others and says so.
  if (logarithmic) {
    const double nothing = (places.empty() ? 1 : std::ranges::min(places)) / 10;
    if (places.size() < sizes.size()) places.push_back(nothing);
    std::ranges::replace_if(
        sizes, [](double size) { return size <= 0; }, nothing);
  }
  Plot plot(metric + " over " + title, axis_around(label, places, logarithmic),
            score_axis(metric, metric + " (mean ± sd over seeds)", scores));
  for (size_t g = 0; g < comparison.groups.size(); ++g) {
    const RunGroup& group = comparison.groups[g];
    const Summary s = group.summary(metric);
    plot.point(sizes[g], s.mean, int(g), names.label(g) + (mib(group) > 0 ? "" : " (none)"),
               s.count < 2 ? 0 : s.sd);
    if (names.numbered() && names.in_legend()) plot.key(int(g), names.in_full(g));
  }
  return plot.svg();
}

// How an optimizer saves memory: by fewer states, or by narrower ones. Lines of equal cost.
std::string state_quadrant(const Comparison& comparison, const Names& names) {
  std::vector<double> widths = {32}, counts = {2};
  const auto states = [](const RunRecord& run) {
    return double(run.state_elements) / double(run.trained_parameters);
  };
  const auto bits = [](const RunRecord& run) {
    return 8 * double(run.measured_state_bytes) / double(std::max<int64_t>(run.state_elements, 1));
  };
  for (const RunGroup& group : comparison.groups) {
    counts.push_back(states(group.runs[0]));
    widths.push_back(bits(group.runs[0]));
  }
  const double most = 1.15 * std::ranges::max(counts), widest = 1.15 * std::ranges::max(widths);
  Plot plot("what is kept, with lines of equal bytes per parameter",
            {"states per parameter", 0, most}, {"bits per state", 0, widest});
  for (const int bytes : {1, 2, 4, 8}) {
    std::vector<double> x, y;
    for (double s = 8 * bytes / widest; s <= most; s += most / 100) {
      x.push_back(s);
      y.push_back(8 * bytes / s);
    }
    if (!x.empty()) plot.guide(x, y, fmt::format("{} byte{}", bytes, bytes == 1 ? "" : "s"));
  }
  for (size_t g = 0; g < comparison.groups.size(); ++g) {
    const RunGroup& group = comparison.groups[g];
    plot.point(states(group.runs[0]), bits(group.runs[0]), int(g), names.label(g));
    if (names.numbered() && names.in_legend()) plot.key(int(g), names.in_full(g));
  }
  return plot.svg();
}

std::string memory_html(const Comparison& comparison, const Names& names) {
  const auto state = [](const RunGroup& group) {
    return double(group.runs[0].measured_state_bytes) / 0x1p20;
  };
  const auto peak = [](const RunGroup& group) {
    return group.mean(&RunRecord::peak_bytes) / 0x1p20;
  };
  return "<h2>Memory</h2>\n<div class='plots'>\n" +
         score_over(comparison, names, "optimizer state", "optimizer state (MiB, logarithmic)",
                    state, true) +
         score_over(comparison, names, "peak memory", "peak of all tensors (MiB)", peak, false) +
         state_quadrant(comparison, names) + "</div>\n";
}

// Options as rows or, where there are more experiments than that, as columns.
std::string differences_html(const Comparison& comparison, const Names& names) {
  if (comparison.differences.empty()) return "";
  Rows rows = {{"option"}};
  for (size_t g = 0; g < comparison.groups.size(); ++g)
    rows[0].push_back(names.with_sample(g));
  for (const auto& [key, values] : comparison.differences) {
    rows.push_back({escape_html(key)});
    for (const std::string& value : values)
      rows.back().push_back(value.empty() ? "–" : escape_html(value));
  }
  if (rows[0].size() > rows.size()) {
    Rows turned(rows[0].size(), std::vector<std::string>(rows.size()));
    for (size_t r = 0; r < rows.size(); ++r)
      for (size_t c = 0; c < rows[r].size(); ++c)
        turned[c][r] = rows[r][c];
    turned[0][0] = "experiment";
    rows = std::move(turned);
  }
  return "<h2>Options that differ</h2>\n" + table_of_html(rows);
}

std::string folders_html(const Comparison& comparison, const Names& names) {
  const std::string& metric = comparison.metrics[0];
  Rows rows = {{"experiment", "seed", metric, "folder"}};
  for (size_t g = 0; g < comparison.groups.size(); ++g) {
    const RunGroup& group = comparison.groups[g];
    for (size_t run = 0; run < group.runs.size(); ++run)
      rows.push_back({names.in_full(g), group.runs[run].seed,
                      fmt::format("{:.4f}", group.values(metric)[run]), group.runs[run].folder});
  }
  return folded_html("Runs and their folders", table_html(rows, "last-left"));
}

}  // namespace

std::string comparison_page(const Comparison& comparison) {
  const Names names(comparison);
  std::string page = page_begin("Runs compared");
  page += results_html(comparison, names);
  for (const std::string& note : comparison.notes)
    page += fmt::format("<p>Note: {}.</p>\n", escape_html(note));
  if (comparison.groups.size() > 1) page += findings_html(comparison, names);
  page += curves_html(comparison, names) + memory_html(comparison, names) +
          differences_html(comparison, names) + folders_html(comparison, names);
  return page + page_end();
}

}  // namespace minim::train
