#include "train/comparison_page.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "train/page.h"
#include "train/plot.h"

namespace minim::train {

namespace {

// The score of each experiment over what its optimizer keeps.
std::string score_over_bytes(const Comparison& comparison) {
  const std::string& metric = comparison.metrics[0];
  std::vector<double> sizes, scores;
  for (const RunGroup& group : comparison.groups) {
    const Summary s = group.summary(metric);
    const double spread = s.count < 2 ? 0 : s.sd;
    // An optimizer without state has no place on a logarithmic axis; a kilobyte stands for it.
    sizes.push_back(std::max(double(group.runs[0].measured_state_bytes), 1024.0) / 0x1p20);
    scores.push_back(s.mean - spread);
    scores.push_back(s.mean + spread);
  }
  Plot plot(fmt::format("{} over optimizer state", metric),
            axis_around("optimizer state (MiB, logarithmic)", sizes, true),
            axis_around(metric + " (mean ± sd over seeds)", scores));
  for (size_t g = 0; g < comparison.groups.size(); ++g) {
    const Summary s = comparison.groups[g].summary(metric);
    plot.point(sizes[g], s.mean, int(g), comparison.groups[g].name, s.count < 2 ? 0 : s.sd);
  }
  return plot.svg();
}

// How an optimizer saves memory: by fewer states, or by narrower ones. Lines of equal cost.
std::string state_quadrant(const Comparison& comparison) {
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
    plot.point(states(group.runs[0]), bits(group.runs[0]), int(g), group.name);
  }
  return plot.svg();
}

}  // namespace

std::string comparison_page(const Comparison& comparison) {
  std::string page = page_begin("Runs compared");
  page += table_html(comparison.rows());
  page +=
      "<p class='small'>± is the standard deviation over seeds. Peak is that of all tensors at "
      "once, weights and data included.</p>\n";
  for (const std::string& note : comparison.notes)
    page += fmt::format("<p>Note: {}.</p>\n", escape_html(note));
  if (comparison.groups.size() > 1) {
    page += "<h2>What the noise allows to say</h2>\n<ul>\n";
    for (const std::string& finding : comparison.findings())
      page += fmt::format("<li>{}</li>\n", escape_html(finding));
    page += "</ul>\n";
  }
  page += "<div class='plots'>\n" + score_over_bytes(comparison) + state_quadrant(comparison) +
          "</div>\n";
  if (!comparison.differences.empty()) {
    std::vector<std::vector<std::string>> rows = {{"option"}};
    for (const RunGroup& group : comparison.groups)
      rows[0].push_back(group.name);
    for (const auto& [key, values] : comparison.differences) {
      rows.push_back({key});
      rows.back().insert(rows.back().end(), values.begin(), values.end());
    }
    page += "<h2>Options that differ</h2>\n" + table_html(rows);
  }
  page += "<h2>Folders</h2>\n<ul class='small'>\n";
  for (const RunGroup& group : comparison.groups)
    for (const RunRecord& run : group.runs)
      page += fmt::format("<li>{}: seed {}, {}</li>\n", escape_html(group.name),
                          escape_html(run.seed), escape_html(run.folder));
  return page + "</ul>\n" + page_end();
}

}  // namespace minim::train
