#pragma once

#include <cstdio>
#include <string>

#include "train/callback.h"
#include "train/run_description.h"

namespace minim::train {

// Writes each log and evaluation as a line of JSON to FOLDER/log.jsonl, at once. Numbers that are
// not finite become null. A run that goes on finds in it the lines up to its checkpoint and no
// more.
class JsonLogCallback : public TrainerCallback {
 public:
  // Opens the file, in a new folder if need be; throws if it cannot be written. What it holds is
  // replaced when training begins.
  explicit JsonLogCallback(const std::string& folder);
  ~JsonLogCallback() override;
  JsonLogCallback(const JsonLogCallback&) = delete;
  JsonLogCallback& operator=(const JsonLogCallback&) = delete;

  void on_train_begin(const TrainerState& state) override;
  void on_log(const TrainerState& state, const Metrics& logs) override;
  void on_evaluate(const TrainerState& state, const Metrics& metrics) override;

 private:
  void open();
  void write(const TrainerState& state, const Metrics& entry);
  std::string path_;
  std::FILE* file_ = nullptr;
};

// Throws, with what to do, unless the folder can be made and written to. Leaves nothing behind.
void check_writable_folder(const std::string& folder);

// Writes a finished run: the model and tokenizer as Hugging Face folders have them, what a
// checkpoint holds beside them (train/checkpoint.h), train_results.json, eval_results.json (where
// there was an evaluation) and all_results.json, which also holds the ledger. What the folder held
// is replaced only when all of it is on the disk. Where the weights are no longer those that the
// optimizer's state belongs to, as after load_best_model_at_end, the model is saved alone.
void save_run(const std::string& folder, const RunDescription& run, const TrainerState& state,
              const Metrics& train_results, const Metrics& eval_results);

}  // namespace minim::train
