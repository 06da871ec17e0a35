#pragma once

#include <optional>
#include <string>

#include "cli.h"
#include "train/cached_dataset.h"
#include "train/records.h"

namespace classifier {

// The options of `train`.
struct TrainOptions {
  minim::train::TrainingArguments arguments;
  DataOptions data;
  std::string model, preset, tokenizer, train_file, validation_file, output_dir;
  std::string config_overrides, freeze, problem_type = "single_label_classification";
  std::string eval_strategy, save_strategy, logging_strategy = "steps";
  std::string report_to = "jsonl,html", logging_dir;
  std::string cache_dir;
  std::string sampling_strategy = "random", device = "auto";
  std::string class_weights;
  int64_t max_seq_length = 128, vocab_size = 4000;
  int64_t max_train_samples = 0, max_eval_samples = 0;
  bool shuffle_train_dataset = false, overwrite_cache = false;
  bool cased = false, sort_labels_as_text = false, skip_unseen_labels = false;
  bool do_train = true, do_eval = false, use_cpu = false;
  bool ignore_mismatched_sizes = false, overwrite_output_dir = false, disable_tqdm = false;
  // The folder to go on from; "": the newest checkpoint; none: a new run.
  std::optional<std::string> resume_from_checkpoint;
  std::optional<int64_t> early_stopping_patience;
  double early_stopping_threshold = 0;

  void add_to(CLI::App& verb);
  // Completes the arguments from the other members; throws a UsageError for what makes no sense.
  void complete();
  // Whether --report-to asks for "jsonl", "html" or "tensorboard".
  bool reports_to(std::string_view kind) const;
  // Where tokens are kept; none: in memory alone.
  std::optional<minim::train::TokenCache> cache() const;
  // What tells this run from others and is none of the Trainer's arguments, with the names of
  // run_classification.py; what was not given is null.
  minim::train::NamedArguments further_arguments() const;
};

// --precision, --bf16 and --fp16.
void add_precision_options(CLI::App& verb, minim::train::TrainingArguments& arguments);
void add_gradient_checkpointing(CLI::App& verb, minim::train::TrainingArguments& arguments);

}  // namespace classifier
