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
  Metrics metrics;  // of the last evaluation, without "eval_"
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
  // A sentence for each group but the first, about its difference from the first: shown, or "no
  // difference shown" where chance makes one as large with p >= 0.05 (t-test, of pairs where both
  // have the same seeds; p times the number of sentences).
  std::vector<std::string> findings() const;
  std::string json() const;
};

}  // namespace minim::train
