#include "train/run_comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "train/table.h"

namespace minim::train {

namespace {

using nlohmann::json;

// What may differ between repetitions of one experiment, or says nothing about its result.
constexpr std::array not_compared = {
    "seed",          "data_seed",          "output_dir",       "overwrite_output_dir",
    "disable_tqdm",  "report_to",          "logging_strategy", "logging_steps",
    "save_strategy", "save_steps",         "save_total_limit", "save_only_model",
    "eval_on_start", "logging_first_step", "logging_dir"};

// Entries of all_results.json that begin with eval_ and are no scores.
constexpr std::array no_scores = {"runtime", "samples_per_second", "steps_per_second"};

json read_object(const std::string& path) {
  const json value = json::parse(read_whole_file(path), nullptr, /*allow_exceptions=*/false);
  check(value.is_object(), "{}: is not a JSON object", path);
  return value;
}

std::string text_of(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// The number at a path such as {"memory", "parameters"}.
double number_at(const json& object, const std::string& file,
                 std::initializer_list<const char*> path) {
  const json* at = &object;
  std::string name;
  for (const char* key : path) {
    name += (name.empty() ? "" : ".") + std::string(key);
    at = at->is_object() && at->contains(key) ? &at->at(key) : nullptr;
    check(at != nullptr, "{}: has no {}; train the run again with this version", file, name);
  }
  check(at->is_number(), "{}: {} is {}, must be a number", file, name, at->dump());
  return at->get<double>();
}

bool lower_is_better(const std::string& metric) {
  return metric.ends_with("loss") || metric == "mse" || metric == "mae";
}

double mib(double bytes) {
  return bytes / 0x1p20;
}

std::string with_spread(const Summary& s) {
  return s.count < 2 ? fmt::format("{:.4f}", s.mean) : fmt::format("{:.4f} ± {:.4f}", s.mean, s.sd);
}

std::string option_of(const RunRecord& run, const std::string& key) {
  const auto found =
      std::ranges::find(run.options, key, &std::pair<std::string, std::string>::first);
  return found == run.options.end() ? "" : found->second;
}

}  // namespace

RunRecord read_run(const std::string& folder) {
  namespace fs = std::filesystem;
  const std::string arguments_file = folder + "/training_args.json";
  const std::string results_file = folder + "/all_results.json";
  check(fs::is_directory(folder), "{}: is no folder; give the --output-dir of finished runs",
        folder);
  for (const std::string& file : {arguments_file, results_file})
    check(fs::exists(file), "{}: is missing; give the --output-dir of finished runs", file);

  const json arguments = read_object(arguments_file), results = read_object(results_file);
  RunRecord run;
  run.folder = folder;
  for (const auto& [key, value] : arguments.items()) {
    if (key == "seed") run.seed = text_of(value);
    if (key == "optim") run.optimizer = text_of(value);
    if (std::ranges::count(not_compared, key) == 0 && key != "optim")
      run.options.emplace_back(key, text_of(value));
  }
  check(!run.optimizer.empty() && !run.seed.empty(), "{}: has no optim or no seed", arguments_file);
  for (const auto& [key, value] : results.items()) {
    const std::string name = key.starts_with("eval_") ? key.substr(5) : "";
    if (!name.empty() && std::ranges::count(no_scores, name) == 0 && value.is_number())
      run.metrics.emplace_back(name, value.get<double>());
  }
  check(!run.metrics.empty(), "{}: was not evaluated; train it with a --validation-file", folder);

  const auto number = [&](auto... path) { return number_at(results, results_file, {path...}); };
  run.trained_parameters = int64_t(number("memory", "trained_parameters"));
  run.state_elements = int64_t(number("memory", "optimizer_state_elements"));
  run.predicted_state_bytes = int64_t(number("memory", "predicted_bytes", "optimizer state"));
  run.measured_state_bytes =
      int64_t(number("memory", "measured_bytes", "optimizer state", "current"));
  run.peak_bytes = int64_t(number("memory", "measured_peak_bytes"));
  run.optimizer_step_ms = number("train_optimizer_step_ms");
  run.train_runtime = number("train_runtime");

  const std::string state_file = folder + "/trainer_state.json";
  if (!fs::exists(state_file)) return run;
  const json state = read_object(state_file);
  for (const json& entry : state.value("log_history", json::array())) {
    Metrics logged;  // without what is not finite, which is null
    for (const auto& [key, value] : entry.items())
      if (value.is_number()) logged.emplace_back(key, value.get<double>());
    run.log_history.push_back(std::move(logged));
  }
  return run;
}

std::vector<double> RunGroup::values(const std::string& metric) const {
  std::vector<double> values;
  for (const RunRecord& run : runs)
    for (const auto& [name, value] : run.metrics)
      if (name == metric) values.push_back(value);
  return values;
}

bool is_share(const std::string& metric) {
  return metric == "accuracy" || metric == "precision" || metric == "recall" ||
         metric.starts_with("f1");
}

Curve curve_of(const RunGroup& group, const std::string& name) {
  std::map<double, std::vector<double>> at;
  Curve curve;
  for (const RunRecord& run : group.runs) {
    std::map<double, double> of_run;  // the last of an epoch, where a resumed run has two
    for (const Metrics& entry : run.log_history) {
      const auto epoch = std::ranges::find(entry, "epoch", &Metrics::value_type::first);
      const auto value = std::ranges::find(entry, name, &Metrics::value_type::first);
      if (epoch != entry.end() && value != entry.end()) of_run[epoch->second] = value->second;
    }
    if (!of_run.empty()) ++curve.runs;
    for (const auto& [epoch, value] : of_run)
      at[epoch].push_back(value);
  }
  for (const auto& [epoch, values] : at) {
    if (int64_t(values.size()) != curve.runs) continue;
    const auto [low, high] = std::ranges::minmax(values);
    curve.epochs.push_back(epoch);
    curve.mean.push_back(summarize(values).mean);
    curve.low.push_back(low);
    curve.high.push_back(high);
  }
  return curve;
}

Comparison Comparison::of(std::vector<RunRecord> runs, const std::string& metric) {
  check(!runs.empty(), "compare: there are no runs");
  Comparison comparison;
  for (RunRecord& run : runs) {
    const auto same = [&](const RunGroup& group) {
      return group.runs[0].optimizer == run.optimizer && group.runs[0].options == run.options;
    };
    auto group = std::ranges::find_if(comparison.groups, same);
    if (group == comparison.groups.end())
      group = comparison.groups.insert(group, RunGroup{run.optimizer, {}});
    for (const RunRecord& other : group->runs)
      check(other.seed != run.seed,
            "compare: {} and {} have the same options and seed, so they are the same run; leave "
            "one out",
            other.folder, run.folder);
    group->runs.push_back(std::move(run));
  }

  // Metrics that every run has, accuracy and F1 in front.
  std::vector<std::string>& metrics = comparison.metrics;
  for (const auto& metric_of_first : comparison.groups[0].runs[0].metrics) {
    const std::string& name = metric_of_first.first;
    const auto lacks = [&](const RunGroup& group) {
      return group.values(name).size() != group.runs.size();
    };
    if (std::ranges::none_of(comparison.groups, lacks)) metrics.push_back(name);
  }
  const auto rank = [&](const std::string& name) {
    return name == metric                            ? 0
           : name == "accuracy"                      ? 1
           : name == "f1"                            ? 2
           : std::ranges::count(no_scores, name) > 0 ? 4
                                                     : 3;
  };
  std::ranges::stable_sort(metrics, {}, rank);
  check(!metrics.empty(), "compare: the runs have no metric in common");
  check(metric.empty() || metrics[0] == metric,
        "compare: not all runs have the metric {}; there {}", metric,
        fmt::format("are {}", fmt::join(metrics, ", ")));

  // The options that are not the same in all groups that have them: a loop of one's own records
  // fewer.
  std::set<std::string> keys;
  for (const RunGroup& group : comparison.groups)
    for (const auto& [key, value] : group.runs[0].options)
      keys.insert(key);
  for (const std::string& key : keys) {
    std::vector<std::string> values;
    for (const RunGroup& group : comparison.groups)
      values.push_back(option_of(group.runs[0], key));
    std::set<std::string> distinct(values.begin(), values.end());
    distinct.erase("");
    if (distinct.size() < 2) continue;
    for (const char* data : {"train_file", "validation_file"})
      if (key == data)
        comparison.notes.push_back(
            fmt::format("the runs have different values of {}: their scores say little about each "
                        "other",
                        key));
    comparison.differences.emplace_back(key, std::move(values));
  }

  // Groups of the same optimizer are told apart by what differs among them.
  for (size_t g = 0; g < comparison.groups.size(); ++g) {
    RunGroup& group = comparison.groups[g];
    for (const auto& [key, values] : comparison.differences) {
      bool tells_apart = false;
      for (size_t other = 0; other < comparison.groups.size(); ++other)
        tells_apart |= comparison.groups[other].runs[0].optimizer == group.runs[0].optimizer &&
                       values[other] != values[g];
      if (tells_apart)
        group.name += fmt::format(" {}={}", key, values[g].empty() ? "none" : values[g]);
    }
  }
  return comparison;
}

std::vector<std::vector<std::string>> Comparison::rows() const {
  std::vector<std::vector<std::string>> rows = {{"optimizer", "runs"}};
  const size_t shown = std::min<size_t>(metrics.size(), 2);
  for (size_t m = 0; m < shown; ++m)
    rows[0].push_back(metrics[m]);
  for (const char* column : {"state MiB", "predicted", "peak MiB", "optimizer ms/step", "train s"})
    rows[0].emplace_back(column);
  const bool any_spread =
      std::ranges::any_of(groups, [](const RunGroup& group) { return group.runs.size() > 1; });
  const size_t spread_end = with_spread({2, 0, 0}).size() - 1;  // ± has two bytes, a blank one
  for (const RunGroup& group : groups) {
    const RunRecord& first = group.runs[0];
    std::vector<std::string> row = {group.name, fmt::format("{}", group.runs.size())};
    for (size_t m = 0; m < shown; ++m) {
      row.push_back(with_spread(group.summary(metrics[m])));
      // Beside others that have a spread, digits stand below digits.
      if (any_spread && group.runs.size() < 2) row.back().resize(spread_end, ' ');
    }
    row.push_back(fmt::format("{:.2f}", mib(double(first.measured_state_bytes))));
    row.push_back(fmt::format("{:.2f}", mib(double(first.predicted_state_bytes))));
    row.push_back(fmt::format("{:.1f}", mib(group.mean(&RunRecord::peak_bytes))));
    row.push_back(fmt::format("{:.2f}", group.mean(&RunRecord::optimizer_step_ms)));
    row.push_back(fmt::format("{:.1f}", group.mean(&RunRecord::train_runtime)));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string Comparison::table() const {
  const auto all = rows();
  Table table(all[0]);
  for (size_t i = 1; i < all.size(); ++i)
    table.add(all[i]);
  return table.to_string();
}

std::string Difference::verdict() const {
  return !is_shown() ? "no difference shown" : is_better ? "better" : "worse";
}

Difference Comparison::difference(size_t index) const {
  const std::string& metric = metrics[0];
  const RunGroup &base = groups[0], &group = groups.at(index);
  Difference difference{.mean = group.summary(metric).mean - base.summary(metric).mean};
  difference.is_better = (difference.mean > 0) != lower_is_better(metric);
  difference.is_testable = group.runs.size() >= 2 && base.runs.size() >= 2;
  if (!difference.is_testable) return difference;
  // By seed, so that equal sets of seeds pair up.
  using SeedAndValue = std::pair<const std::string, double>;
  const auto by_seed = [&](const RunGroup& of) {
    std::map<std::string, double> values;
    for (size_t run = 0; run < of.runs.size(); ++run)
      values[of.runs[run].seed] = of.values(metric)[run];
    return values;
  };
  const std::map<std::string, double> ours = by_seed(group), theirs = by_seed(base);
  difference.is_paired =
      std::ranges::equal(ours, theirs, {}, &SeedAndValue::first, &SeedAndValue::first);
  std::vector<double> x, y;
  std::ranges::transform(ours, std::back_inserter(x), &SeedAndValue::second);
  std::ranges::transform(theirs, std::back_inserter(y), &SeedAndValue::second);
  const MeanDifference seen =
      difference.is_paired ? paired_difference(x, y) : welch_difference(x, y);
  const auto compared = double(groups.size() - 1);
  difference.p = std::min(1.0, compared * seen.p_value());
  difference.low = difference.mean - seen.reach(0.05 / compared);
  difference.high = difference.mean + seen.reach(0.05 / compared);
  return difference;
}

std::vector<std::string> Comparison::findings() const {
  std::vector<std::string> findings;
  const std::string& metric = metrics[0];
  const RunGroup& base = groups[0];
  for (size_t g = 1; g < groups.size(); ++g) {
    const RunGroup& group = groups[g];
    const Difference d = difference(g);
    const std::string line =
        fmt::format("{}: {} {:.4f} against {:.4f} of {}, {:+.4f}: ", group.name, metric,
                    group.summary(metric).mean, base.summary(metric).mean, base.name, d.mean);
    const size_t n = group.runs.size();
    findings.push_back(
        line + (d.is_testable
                    ? fmt::format("{} (p = {:.2g}, {})", d.verdict(), d.p,
                                  d.is_paired ? fmt::format("{} pairs of runs", n)
                                              : fmt::format("{} and {} runs", n, base.runs.size()))
                    : "no difference shown, as it takes two runs of each to see the noise"));
  }
  return findings;
}

std::string Comparison::json() const {
  using nlohmann::json;
  json all = {{"metric", metrics[0]}, {"groups", json::array()}};
  for (const RunGroup& group : groups) {
    const RunRecord& first = group.runs[0];
    json entry = {{"name", group.name},
                  {"optim", first.optimizer},
                  {"trained_parameters", first.trained_parameters},
                  {"state_elements", first.state_elements},
                  {"predicted_state_bytes", first.predicted_state_bytes},
                  {"measured_state_bytes", first.measured_state_bytes},
                  {"peak_bytes", group.mean(&RunRecord::peak_bytes)},
                  {"optimizer_step_ms", group.mean(&RunRecord::optimizer_step_ms)},
                  {"train_runtime", group.mean(&RunRecord::train_runtime)}};
    for (const RunRecord& run : group.runs)
      entry["runs"].push_back({{"folder", run.folder}, {"seed", run.seed}});
    for (const std::string& metric : metrics) {
      const Summary s = group.summary(metric);
      entry["metrics"][metric] = {{"mean", s.mean},
                                  {"sd", std::isnan(s.sd) ? json(nullptr) : json(s.sd)},
                                  {"values", group.values(metric)}};
    }
    all["groups"].push_back(std::move(entry));
  }
  all["findings"] = findings();
  for (const auto& [key, values] : differences)
    all["differences"][key] = values;
  all["notes"] = notes;
  return all.dump(2, ' ', false, json::error_handler_t::replace);
}

}  // namespace minim::train
