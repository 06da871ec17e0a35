#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "train/metrics.h"
#include "train/statistics.h"

namespace minim::train {

// A finished run as its folder tells: from training_args.json and all_results.json.
struct RunRecord {
  std::string folder;
  std::string optimizer;
  std::string seed;
  // What was asked for, without what may differ between repetitions of one experiment.
  std::vector<std::pair<std::string, std::string>> options;
  Metrics metrics;                   // of the last evaluation, without "eval_"
  std::vector<Metrics> log_history;  // as in TrainerState; empty where the folder has none
  int64_t trained_parameters = 0;
  int64_t state_elements = 0, predicted_state_bytes = 0, measured_state_bytes = 0;
  int64_t peak_bytes = 0;        // of all tensors at once
  double optimizer_step_ms = 0;  // mean time of the optimizer alone
  double train_runtime = 0;      // seconds
};

// Throws, with what to do, for a folder that is no finished and evaluated run.
RunRecord read_run(const std::string& folder);

// Runs that differ in their seeds alone.
struct RunGroup {
  std::string name;  // the optimizer and, where others have it too, what sets the group apart
  std::vector<RunRecord> runs;

  std::vector<double> values(const std::string& metric) const;
  Summary summary(const std::string& metric) const { return summarize(values(metric)); }
  // Of a member of the records, over the runs.
  template <class T>
  double mean(T RunRecord::*member) const {
    double sum = 0;
    for (const RunRecord& run : runs)
      sum += double(run.*member);
    return sum / double(runs.size());
  }
};

// A logged value over the epochs of a group's runs: at those that all runs have which logged it.
struct Curve {
  int64_t runs = 0;  // that logged it
  std::vector<double> epochs, mean, low, high;
};
Curve curve_of(const RunGroup& group, const std::string& name);

// Whether a metric lies between 0 and 1, as accuracy does.
bool is_share(const std::string& metric);

// How a group differs from the first in the metric to judge by.
struct Difference {
  double mean = 0;
  double low = 0, high = 0;  // the interval that misses the true difference in 5 % of comparisons
  double p = 1;              // of a t-test, times the number of groups compared
  bool is_paired = false;    // by seed, where both have the same ones
  bool is_testable = false;  // it takes two runs of each to see the noise
  bool is_better = false;    // if it is shown
  bool is_shown() const { return is_testable && p < 0.05; }
  std::string verdict() const;  // "no difference shown", "better" or "worse"
};

// Several experiments side by side.
struct Comparison {
  std::vector<RunGroup> groups;      // in the order of their first runs
  std::vector<std::string> metrics;  // that all runs have; the first is the one to judge by
  // Options in which groups differ, and each group's value.
  std::vector<std::pair<std::string, std::vector<std::string>>> differences;
  // What stands in the way of comparing, such as different training files.
  std::vector<std::string> notes;

  // Puts runs into groups. `metric` is the one to judge by; empty: accuracy, or the first there is.
  // Throws where two runs are the same, or no metric is common to all.
  static Comparison of(std::vector<RunRecord> runs, const std::string& metric = "");

  // Header and one row per group, as text; table() sets them in columns.
  std::vector<std::vector<std::string>> rows() const;
  std::string table() const;
  // Of the group at `index` >= 1 from the first.
  Difference difference(size_t index) const;
  // A sentence for each group but the first, about its difference from the first: shown, or "no
  // difference shown" where chance makes one as large with p >= 0.05 (t-test, of pairs where both
  // have the same seeds; p times the number of sentences).
  std::vector<std::string> findings() const;
  std::string json() const;
};

}  // namespace minim::train
