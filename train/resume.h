#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/distilbert.h"
#include "optim/any_optimizer.h"
#include "train/callback.h"
#include "train/records.h"

// Going on from what train/checkpoint.h wrote.
namespace minim::train {

// Whether a folder has all that going on takes.
bool is_resumable(const std::string& folder);

// The folder to go on from: the newest resumable checkpoint in an output folder, or the folder
// itself where it is one, as that of a checkpoint and of a finished run, and none of its
// checkpoints is newer. Throws, with what to do, where there is none.
std::string find_checkpoint(const std::string& folder);

// Whether a folder is `outer` itself or lies directly in it; "" is nowhere.
bool is_inside(const std::string& folder, const std::string& outer);

// Compares the arguments of a run with those that the run of a checkpoint had, both as
// training_args_json() writes them; names that only one of them has are not compared. Those that
// decide the result must be equal: throws, naming all that are not. Returns a sentence for each
// other difference but the names of outputs. `optimizer` "" leaves "optim" out.
std::vector<std::string> check_same_run(const std::string& checkpoint,
                                        const TrainingArguments& arguments,
                                        std::string_view optimizer,
                                        const NamedArguments& further = {});

// Puts model, optimizer and random numbers as they were when a checkpoint was written, and fills in
// what the state does not get from the arguments. Throws, naming the file, for one that is damaged
// or does not fit; then the run must not go on.
void restore_checkpoint(const std::string& checkpoint,
                        models::DistilBertForSequenceClassification& model,
                        optim::AnyOptimizer& optimizer, TrainerState& state);

// Puts the weights of a model folder into a model of the same shape.
void load_weights(const std::string& folder,
                  const models::DistilBertForSequenceClassification& model);

}  // namespace minim::train
