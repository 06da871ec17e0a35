#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/memory_ledger.h"
#include "train/report_predictions.h"
#include "train/run_description.h"

namespace minim::train {

using NamedTexts = std::vector<std::pair<std::string, std::string>>;

// A finished run, for people.
struct RunReport {
  std::string title;
  std::vector<Metrics> log_history;  // as in TrainerState
  Metrics train_results, eval_results;
  std::optional<ReportedPredictions> predictions;  // of the model that was saved
  MemoryLedger ledger;
  MeasuredMemory measured;
  optim::StateSize optimizer_state;
  NamedTexts options, environment;
};

// The report as one HTML page that needs nothing else: results, curves, what was right and wrong,
// memory predicted and measured, the optimizer's state by tensor, options and environment.
std::string report_page(const RunReport& report);

// The options of a run as training_args.json has them.
NamedTexts options_of(const RunDescription& run);

// What a run was computed with: device, threads, processor, its instructions that the program was
// built for, compiler, system, and the time.
NamedTexts environment_of(Device device);

}  // namespace minim::train
