#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "train/callback.h"
#include "train/training_arguments.h"

// The JSON files that tell of a run, as texts. Numbers that are not finite become null, whole ones
// lose their fraction.
namespace minim::train {

struct MemoryLedger;
struct MeasuredMemory;

// Arguments that a program has beside the Trainer's, such as the model's name, with the names that
// Hugging Face's scripts have for them.
using ArgumentValue =
    std::variant<std::nullptr_t, bool, int64_t, double, std::string, std::vector<std::string>>;
using NamedArguments = std::vector<std::pair<std::string, ArgumentValue>>;

// One flat object, over several lines and on one.
std::string metrics_json(const Metrics& metrics);
std::string metrics_line(const Metrics& metrics);
// training_args.json; "optim" is the name the optimizer has for itself, whatever alias was given.
std::string training_args_json(const TrainingArguments& arguments, std::string_view optimizer,
                               const NamedArguments& further);
// trainer_state.json, with the keys of Hugging Face's TrainerState and no others: what that does
// not have is among "stateful_callbacks", under "Trainer".
std::string trainer_state_json(const TrainerState& state, const TrainingArguments& arguments);
// all_results.json: both kinds of metrics, the mean time of the optimizer's step, and memory,
// predicted and measured.
std::string all_results_json(const Metrics& train_results, const Metrics& eval_results,
                             const TrainerState& state, const MemoryLedger& ledger,
                             const MeasuredMemory& measured);

}  // namespace minim::train
