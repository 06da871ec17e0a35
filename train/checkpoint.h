#pragma once

#include <string>
#include <vector>

#include "train/callback.h"
#include "train/run_description.h"

// What is kept of a run so that it can go on exactly as it would have.
namespace minim::train {

// Writes the files of a checkpoint into a folder:
//
//   config.json, model.safetensors, the tokenizer's files    a model folder as any other
//   training_args.json       how the run was started
//   trainer_state.json       counters, sums of losses and the log so far
//   optimizer.safetensors    state by parameter name (optim/state_file.h)
//   scheduler.json           the learning rate that follows, with the keys of PyTorch's LambdaLR
//   rng_state.json           "generator": seed and offset of the dropout masks; "data_order": seed,
//                            epoch and batch of text::Sampler from which the next update is made
//
// With model_only the last three are left out.
void write_checkpoint_files(const std::string& folder, const RunDescription& run,
                            const TrainerState& state, bool model_only);

// A folder "checkpoint-STEP".
struct CheckpointFolder {
  int64_t step;
  std::string path;
};

// The checkpoints in an output folder by ascending step; none where there is no such folder.
std::vector<CheckpointFolder> list_checkpoints(const std::string& output_dir);

// The optimizer's state file of a run folder or checkpoint: its own or else that of the newest
// checkpoint in it. A path that is no folder is returned as it is. Throws where there is none.
std::string find_optimizer_state(const std::string& path);

// Writes a checkpoint, complete or not at all, whenever the Trainer says that one is due, with all
// that going on takes where the run is interrupted, whatever save_only_model says. Then removes
// older ones beyond save_total_limit: first those of later steps, which a run that had the folder
// before has left, then the oldest; never the one just written and never that of the best
// evaluation.
class CheckpointCallback : public TrainerCallback {
 public:
  // With `replaces`, the first checkpoint of a run that does not go on from one takes the place of
  // all that are in the folder.
  CheckpointCallback(std::string output_dir, RunDescription run, bool replaces = false);

  void on_train_begin(const TrainerState& state) override;
  std::string on_save(const TrainerState& state) override;

 private:
  void remove_old(const TrainerState& state) const;

  std::string output_dir_;
  RunDescription run_;
  bool replaces_;
};

}  // namespace minim::train
