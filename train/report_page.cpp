#include "train/report_page.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <fstream>
#include <sys/utsname.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/parallel.h"
#include "train/heat_map.h"
#include "train/page.h"
#include "train/plot.h"
#include "train/table.h"

namespace minim::train {

namespace {

using Rows = std::vector<std::vector<std::string>>;

// One logged value over the epochs.
struct Curve {
  std::vector<double> epochs, values;
};

double value_in(const Metrics& metrics, const std::string& name) {
  const auto found = std::ranges::find(metrics, name, &std::pair<std::string, double>::first);
  return found == metrics.end() ? NAN : found->second;
}

// Values that are not finite have no place in a picture.
Curve curve_of(const RunReport& report, const std::string& name) {
  Curve curve;
  for (const Metrics& entry : report.log_history) {
    const double epoch = value_in(entry, "epoch"), value = value_in(entry, name);
    if (!std::isfinite(epoch) || !std::isfinite(value)) continue;
    curve.epochs.push_back(epoch);
    curve.values.push_back(value);
  }
  return curve;
}

// Curves over the epochs under one title; those that have many points as lines alone. Nothing
// where there are fewer than two points in all.
std::string plot_of(const std::string& title, const std::string& unit,
                    const std::vector<std::pair<std::string, Curve>>& curves) {
  std::vector<double> values, epochs;
  for (const auto& [name, curve] : curves) {
    values.insert(values.end(), curve.values.begin(), curve.values.end());
    epochs.insert(epochs.end(), curve.epochs.begin(), curve.epochs.end());
  }
  if (epochs.size() < 2) return "";
  Axis y = axis_around(unit, values);
  if (unit == "share") y.high = std::min(y.high, 1.0);
  Plot plot(title, {"epoch", 0, std::max(std::ranges::max(epochs), 1e-9)}, std::move(y));
  int series = 0;
  for (const auto& [name, curve] : curves) {
    if (!curve.epochs.empty())
      plot.line(curve.epochs, curve.values, series, name, curve.epochs.size() <= 30);
    ++series;
  }
  return plot.svg();
}

std::string curves_html(const RunReport& report) {
  const auto named = [&](const std::string& name) { return curve_of(report, name); };
  std::string html = plot_of("loss", "loss (mean per row)",
                             {{"training", named("loss")}, {"evaluation", named("eval_loss")}});
  const bool has_classes = !named("eval_accuracy").values.empty();
  if (has_classes)
    html += plot_of("evaluation", "share",
                    {{"accuracy", named("eval_accuracy")}, {"F1", named("eval_f1")}});
  else
    html += plot_of("evaluation", "correlation",
                    {{"Pearson", named("eval_pearson")}, {"Spearman", named("eval_spearman")}});
  html += plot_of("learning rate", "learning rate", {{"", named("learning_rate")}});
  html += plot_of("gradient norm", "norm before clipping", {{"", named("grad_norm")}});
  return html.empty() ? "" : "<h2>Curves</h2>\n<div class='plots'>\n" + html + "</div>\n";
}

std::string tiles_html(const RunReport& report) {
  std::string html = "<div class='tiles'>\n";
  const auto add = [&](const std::string& name, const std::string& value) {
    html += fmt::format("<div><span>{}</span><b>{}</b></div>\n", name, value);
  };
  const auto add_metric = [&](const Metrics& metrics, const std::string& key, const char* name) {
    const double value = value_in(metrics, key);
    if (std::isfinite(value)) add(name, fmt::format("{:.4f}", value));
  };
  add_metric(report.eval_results, "eval_accuracy", "accuracy");
  add_metric(report.eval_results, "eval_f1", "F1");
  add_metric(report.eval_results, "eval_pearson", "Pearson");
  add_metric(report.eval_results, "eval_mse", "mean squared error");
  add_metric(report.eval_results, "eval_loss", "evaluation loss");
  add_metric(report.train_results, "train_loss", "training loss (mean)");
  const double seconds = value_in(report.train_results, "train_runtime");
  if (std::isfinite(seconds)) add("training", fmt::format("{:.1f} s", seconds));
  add("parameters", with_commas(report.ledger.parameters));
  add("peak memory", in_mib(report.measured.peak) + " MiB");
  return html + "</div>\n";
}

std::string memory_html(const RunReport& report) {
  const MemoryLedger& ledger = report.ledger;
  const double largest =
      double(std::max({report.measured.peak, ledger.predicted_peak, int64_t(1)}));
  const auto bar = [&](const char* kind, int64_t bytes) {
    return fmt::format("<span class='bar {}' style='width:{:.1f}%'></span>", kind,
                       100 * double(bytes) / largest);
  };
  Rows rows = {{"category", "predicted (MiB)", "measured peak (MiB)", ""}};
  const auto add = [&](std::string name, std::optional<int64_t> predicted, int64_t measured) {
    rows.push_back({std::move(name), predicted ? in_mib(*predicted) : "-", in_mib(measured),
                    "<div class='bars'>" + (predicted ? bar("said", *predicted) : "") +
                        bar("", measured) + "</div>"});
  };
  for (size_t c = 0; c < memory::categories; ++c) {
    const auto category = memory::Category(c);
    add(std::string(memory::name_of(category)), ledger.predicted(category),
        report.measured.peaks[c]);
  }
  std::optional<int64_t> all;
  if (ledger.step) all = ledger.predicted_peak;
  add("<b>all at once</b>", all, report.measured.peak);
  return "<h2>Memory</h2>\n" + table_of_html(rows) +
         "<p class='small'>Outlined: predicted from shapes, for a training step and an "
         "evaluation on the largest batches that were met. Filled: the most that tensors of the "
         "category ever held. Categories peak at different times, so all at once is less than "
         "their sum. What pools keep is not counted.</p>\n";
}

std::string state_html(const optim::StateSize& state) {
  Rows rows = {{"parameter", "state", "shape", "type", "bytes"}};
  for (const optim::StateSize::Entry& entry : state.entries)
    rows.push_back({entry.parameter.empty() ? "(shared by all)" : entry.parameter, entry.key,
                    fmt::format("{}", entry.shape), std::string(name_of(entry.dtype)),
                    with_commas(entry.bytes)});
  return folded_html(
      fmt::format("Optimizer state by tensor: {} tensors, {} elements, {} bytes",
                  state.entries.size(), with_commas(state.elements), with_commas(state.bytes)),
      table_html(rows));
}

std::string pairs_html(const char* name, const NamedTexts& pairs) {
  Rows rows = {{name, "value"}};
  for (const auto& [key, value] : pairs)
    rows.push_back({key, value});
  return table_html(rows, "prose");
}

// The name that the processor gives itself; "" where the system does not tell.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (const size_t colon = line.find(": ");
        line.starts_with("model name") && colon != std::string::npos)
      return line.substr(colon + 2);
  return "";
}

constexpr const char* built_for() {
#if defined(__AVX512F__)
  return "AVX-512";
#elif defined(__AVX2__)
  return "AVX2 or later";
#elif defined(__ARM_NEON)
  return "NEON";
#else
  return "the processor family's common ones";
#endif
}

}  // namespace

std::string report_page(const RunReport& report) {
  std::string page = page_begin(report.title);
  page += fmt::format("<style>{}</style>\n", heat_map_style());
  page += tiles_html(report) + curves_html(report);
  if (report.predictions) page += predictions_html(*report.predictions);
  page += memory_html(report) + state_html(report.optimizer_state);
  page += folded_html("Options", pairs_html("option", report.options));
  page += "<h2>Environment</h2>\n" + pairs_html("", report.environment);
  return page + page_end();
}

NamedTexts options_of(const RunDescription& run) {
  const auto json =
      nlohmann::json::parse(training_args_json(run.arguments, run.optimizer.name(), run.further));
  NamedTexts options;
  for (const auto& [name, value] : json.items())
    if (!value.is_null())
      options.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
  return options;
}

NamedTexts environment_of(Device device) {
  NamedTexts environment = {{"device", device.to_string()},
                            {"threads", fmt::format("{}", thread_count())}};
  if (std::string name = processor_name(); !name.empty())
    environment.emplace_back("processor", std::move(name));
  environment.emplace_back("built for instructions", built_for());
  environment.emplace_back("compiler", __VERSION__);
  utsname system{};
  if (::uname(&system) == 0)
    environment.emplace_back(
        "system", fmt::format("{} {} {}", system.sysname, system.release, system.machine));
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 64> stamp{};
  std::strftime(stamp.data(), stamp.size(), "%Y-%m-%d %H:%M UTC", &utc);
  environment.emplace_back("ended", stamp.data());
  return environment;
}

}  // namespace minim::train
