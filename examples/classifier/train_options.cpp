#include "train_options.h"

#include <algorithm>

#include <fmt/format.h>

#include "optim/make_optimizer.h"
#include "optim/schedule.h"

namespace classifier {

using namespace minim;

static std::vector<std::string> report_kinds(const std::string& list) {
  return CLI::detail::split(list, ',');
}

bool TrainOptions::reports_to(std::string_view kind) const {
  return report_to == "all" || std::ranges::count(report_kinds(report_to), kind) > 0;
}

std::optional<train::TokenCache> TrainOptions::cache() const {
  if (cache_dir.empty()) return {};
  return train::TokenCache{.folder = cache_dir, .overwrite = overwrite_cache};
}

void TrainOptions::complete() {
  check_usage(
      model.empty() != preset.empty(),
      "train: give --model-name-or-path FOLDER for a saved model or --preset NAME for a new "
      "one, and not both");
  check_usage(model.empty() || config_overrides.empty(),
              "--config-overrides: goes with --preset; a saved model has its own config.json");
  check_usage(eval_strategy.empty() || eval_strategy == "no" || !validation_file.empty(),
              "--eval-strategy {}: needs a --validation-file", eval_strategy);
  check_usage(!arguments.eval_on_start || !validation_file.empty(),
              "--eval-on-start: needs a --validation-file");
  check_usage(resume_from_checkpoint.has_value() + overwrite_output_dir < 2,
              "--resume-from-checkpoint: goes on with the run that --overwrite-output-dir would "
              "replace; give one of them");
  check_usage(
      arguments.label_smoothing_factor == 0 || problem_type == "single_label_classification",
      "--label-smoothing-factor: is for rows of one class each, not for {}", problem_type);
  check_usage(do_train,
              "--do-train false: this verb trains; classifier evaluate and predict do not");
  check_usage(!do_eval || !validation_file.empty(), "--do-eval: needs a --validation-file");
  if (use_cpu) device = "cpu";
  if (eval_strategy.empty()) eval_strategy = validation_file.empty() ? "no" : "epoch";
  if (save_strategy.empty())
    save_strategy = arguments.load_best_model_at_end ? eval_strategy : "no";
  if (early_stopping_patience && arguments.metric_for_best_model.empty())
    arguments.metric_for_best_model = "loss";
  arguments.eval_strategy = train::parse_interval_strategy(eval_strategy);
  arguments.logging_strategy = train::parse_interval_strategy(logging_strategy);
  arguments.save_strategy = train::parse_interval_strategy(save_strategy);
  arguments.train_sampling_strategy = text::parse_sampling_strategy(sampling_strategy);
  check_usage(!overwrite_cache || !cache_dir.empty(),
              "--overwrite-cache: there is no cache without --cache-dir");
  check_usage(class_weights.empty() || sampling_strategy != "weighted",
              "--class-weights: --train-sampling-strategy weighted evens out the classes already; "
              "give one of them");
  try {
    arguments.validate();
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
}

train::NamedArguments TrainOptions::further_arguments() const {
  const auto text = [](const std::string& value) -> train::ArgumentValue {
    return value.empty() ? train::ArgumentValue(nullptr) : value;
  };
  return {{"training_loop", "Trainer"},
          {"model_name_or_path", text(model)},
          {"preset", text(preset)},
          {"config_overrides", text(config_overrides)},
          {"tokenizer_name", text(tokenizer)},
          {"vocab_size", vocab_size},
          {"cased", cased},
          {"train_file", train_file},
          {"validation_file", text(validation_file)},
          {"output_dir", output_dir},
          {"text_column_names", data.text_columns},
          {"label_column_name", text(data.label_column)},
          {"max_train_samples", max_train_samples},
          {"max_eval_samples", max_eval_samples},
          {"shuffle_train_dataset", shuffle_train_dataset},
          {"problem_type", problem_type},
          {"sort_labels_as_text", sort_labels_as_text},
          {"skip_unseen_labels", skip_unseen_labels},
          {"ignore_mismatched_sizes", ignore_mismatched_sizes},
          {"max_seq_length", max_seq_length},
          {"freeze", text(freeze)},
          {"early_stopping_patience", early_stopping_patience
                                          ? train::ArgumentValue(*early_stopping_patience)
                                          : train::ArgumentValue(nullptr)},
          {"early_stopping_threshold", early_stopping_threshold},
          {"report_to", report_to},
          {"logging_dir", text(logging_dir)}};
}

void add_precision_options(CLI::App& verb, train::TrainingArguments& a) {
  verb.add_option_function<std::string>(
          "--precision",
          [&a](const std::string& name) { a.precision = train::parse_precision(name); },
          "What forward and backward compute in; weights and optimizer state are f32 in each. fp16 "
          "scales the loss; auto is bf16 on a CUDA device, where it is faster, and fp32 on the CPU")
      ->check(CLI::IsMember({"auto", "fp32", "bf16", "fp16"}))
      ->default_str("fp32");
  verb.add_flag("--bf16", a.bf16, "The same as --precision bf16");
  verb.add_flag("--fp16", a.fp16, "The same as --precision fp16");
}

void add_gradient_checkpointing(CLI::App& verb, train::TrainingArguments& a) {
  verb.add_flag(
      option("--gradient-checkpointing"), a.gradient_checkpointing,
      "Compute blocks again in the backward instead of keeping what it needs of them: the "
      "same bits in less memory and more time");
}

void TrainOptions::add_to(CLI::App& verb) {
  TrainOptions& o = *this;
  train::TrainingArguments& a = arguments;
  verb.add_option(option("--model-name-or-path"), o.model,
                  "Folder with config.json, weights and tokenizer");
  verb.add_option("--preset", o.preset, "A new model instead")
      ->check(CLI::IsMember({"tiny", "small", "base"}));
  verb.add_option(option("--config-overrides"), o.config_overrides,
                  "Changes to the preset's config, such as dropout=0.2,n_layers=3");
  verb.add_option(option("--tokenizer-name"), o.tokenizer,
                  "Folder of the tokenizer, if not the model's");
  verb.add_option(option("--vocab-size"), o.vocab_size,
                  "Pieces of the vocabulary that a new model learns from the training texts")
      ->check(CLI::PositiveNumber);
  verb.add_flag("--cased", o.cased, "Keep case and accents in that vocabulary");
  verb.add_option(option("--train-file"), o.train_file, "CSV, TSV or JSON lines")->required();
  verb.add_option(option("--validation-file"), o.validation_file, "The same, to evaluate on");
  verb.add_option(option("--max-train-samples"), o.max_train_samples,
                  "Only the first rows of the training file (0: all)")
      ->check(CLI::NonNegativeNumber);
  verb.add_option(option("--max-eval-samples"), o.max_eval_samples,
                  "Only the first rows of the validation file (0: all)")
      ->check(CLI::NonNegativeNumber);
  verb.add_option(option("--cache-dir"), o.cache_dir,
                  "Folder to keep tokens in: files larger than memory can be trained on, and are "
                  "tokenized once (none: all is in memory)");
  verb.add_flag(option("--overwrite-cache"), o.overwrite_cache,
                "Tokenize anew what that folder has already");
  verb.add_flag(option("--shuffle-train-dataset"), o.shuffle_train_dataset,
                "Shuffle the training file by --seed before its first rows are taken");
  verb.add_flag(option("--do-train"), o.do_train, "What this verb does, in any case");
  verb.add_flag(option("--do-eval"), o.do_eval,
                "The same as to give --validation-file, which it needs");
  verb.add_option(option("--output-dir"), o.output_dir, "Folder for model and records")->required();
  verb.add_flag(option("--overwrite-output-dir"), o.overwrite_output_dir,
                "Write over a model in the output folder; checkpoints in it go when this run has "
                "one of its own");
  verb.add_option_function<std::vector<std::string>>(
          option("--resume-from-checkpoint"),
          [&o](const std::vector<std::string>& given) {
            const std::string folder = given.empty() ? "" : given.back();
            // As in Hugging Face, true is the newest one.
            const bool is_true = folder == "true" || folder == "True";
            if (folder != "false" && folder != "False")
              o.resume_from_checkpoint = is_true ? "" : folder;
          },
          "Go on from a checkpoint, bit for bit, or from the newest in the output folder: repeat "
          "the command with this option. Refused where other options that decide the result have "
          "changed or the training data have. May change, and is told: the number of epochs or "
          "steps (the learning rate follows the new one, as in Hugging Face), evaluation, logging, "
          "saving, early stopping, and where files are")
      ->type_name("[DIR]")
      ->expected(0, 1)
      ->default_str("");
  verb.add_flag(option("--ignore-data-skip"), a.ignore_data_skip,
                "A resumed run begins the epoch at hand anew, instead of where it was");
  o.data.add_to(verb);
  verb.add_option(option("--problem-type"), o.problem_type, "What the labels are")
      ->check(CLI::IsMember(
          {"single_label_classification", "multi_label_classification", "regression"}));
  verb.add_flag(option("--sort-labels-as-text"), o.sort_labels_as_text,
                "Order whole-number labels as run_classification.py does (1, 10, 2)");
  verb.add_flag(option("--skip-unseen-labels"), o.skip_unseen_labels,
                "Leave out validation rows whose label training does not have");
  verb.add_flag(option("--ignore-mismatched-sizes"), o.ignore_mismatched_sizes,
                "Give weights of another shape new values");
  verb.add_option(
      "--freeze", o.freeze,
      "Parameters whose names match get no gradient, such as 'distilbert.embeddings.*'");
  verb.add_option(option("--max-seq-length"), o.max_seq_length, "Tokens that are kept of a text")
      ->check(at_least_three);

  std::string known;
  for (const std::string_view name : optim::optimizer_names())
    known += (known.empty() ? "" : ", ") + std::string(name);
  verb.add_option("--optim", a.optim, known + ", or Hugging Face's name of it");
  verb.add_option(option("--optim-args"), a.optim_args,
                  "Other fields of the optimizer's options, such as amsgrad=True");
  verb.add_option(option("--learning-rate"), a.learning_rate, "Highest learning rate");
  verb.add_option(option("--weight-decay"), a.weight_decay, "Not for biases and norms");
  verb.add_option(option("--adam-beta1"), a.adam_beta1, "Decay of the average gradient");
  verb.add_option(option("--adam-beta2"), a.adam_beta2, "Decay of the average squared gradient");
  verb.add_option(option("--adam-epsilon"), a.adam_epsilon, "Added to the root of the latter");
  verb.add_option(option("--max-grad-norm"), a.max_grad_norm,
                  "Gradients are scaled to it; 0: never");
  verb.add_option(option("--lr-scheduler-type"), a.lr_scheduler_type,
                  "How the rate changes over the steps")
      ->check(CLI::IsMember(std::vector<std::string>(optim::schedule_names().begin(),
                                                     optim::schedule_names().end())));
  verb.add_option(option("--lr-scheduler-kwargs"), a.lr_scheduler_kwargs,
                  "Its other options, such as num_cycles=2,min_lr=1e-6 or {\"num_cycles\": 2}");
  verb.add_option(option("--warmup-steps"), a.warmup_steps, "Below 1: a ratio of all steps");
  verb.add_option(option("--warmup-ratio"), a.warmup_ratio, "Used where --warmup-steps is 0");
  verb.add_option(option("--num-train-epochs"), a.num_train_epochs,
                  "Passes over the training data");
  verb.add_option(option("--max-steps"), a.max_steps, "Above 0: instead of epochs");
  verb.add_option(option("--per-device-train-batch-size"), a.per_device_train_batch_size,
                  "Rows of a batch");
  verb.add_option(option("--per-device-eval-batch-size"), a.per_device_eval_batch_size,
                  "Rows of a batch in evaluation");
  verb.add_option(option("--gradient-accumulation-steps"), a.gradient_accumulation_steps,
                  "Batches of one update");
  add_gradient_checkpointing(verb, a);
  verb.add_option(option("--train-sampling-strategy"), o.sampling_strategy,
                  "Order of the rows; group_by_length puts similar lengths together, weighted "
                  "draws with replacement so that all classes come equally often")
      ->check(CLI::IsMember({"random", "sequential", "group_by_length", "weighted"}));
  verb.add_option(option("--class-weights"), o.class_weights,
                  "How much rows of a class count in the loss of training: balanced (the rarer, "
                  "the more), or such as spam=5,ham=0.5, 1 where not named");
  verb.add_option(option("--label-smoothing-factor"), a.label_smoothing_factor,
                  "Share of each target that is spread over all classes, in training and in "
                  "eval_loss; eval_unsmoothed_loss stands beside it");
  verb.add_option(option("--neftune-noise-alpha"), a.neftune_noise_alpha,
                  "Noise on the word embeddings in training, such as 5 (NEFTune)");
  verb.add_flag(option("--dataloader-drop-last"), a.dataloader_drop_last,
                "Leave out the last batch of an epoch where it is not full; evaluation never does");
  verb.add_option(
      option("--non-finite-patience"), a.non_finite_patience,
      "Leave out up to so many updates in a row whose loss or gradient is not finite before "
      "the run ends");
  add_device_option(verb, o.device);
  verb.add_flag(option("--use-cpu"), o.use_cpu, "The same as --device cpu");
  add_precision_options(verb, a);
  verb.add_flag(option("--bf16-full-eval"), a.bf16_full_eval, "Evaluate in bf16 in any case");
  verb.add_flag(option("--fp16-full-eval"), a.fp16_full_eval, "Evaluate in f16 in any case");
  verb.add_option("--seed", a.seed, "Of new weights, dropout and the order of rows");
  verb.add_option(option("--data-seed"), a.data_seed, "Of the order of rows alone");
  // The former name, which many commands still have.
  verb.add_option(option("--eval-strategy") + "," + option("--evaluation-strategy"),
                  o.eval_strategy, "When to evaluate (epoch where there is a validation file)")
      ->check(CLI::IsMember({"no", "steps", "epoch"}));
  verb.add_option(option("--eval-steps"), a.eval_steps,
                  "Updates between evaluations (as many as between log entries); below 1: a ratio "
                  "of all steps");
  verb.add_option(option("--eval-delay"), a.eval_delay,
                  "Epochs, or updates under steps, before the first evaluation");
  verb.add_flag(option("--eval-on-start"), a.eval_on_start, "Evaluate before the first update too");
  verb.add_flag(option("--prediction-loss-only"), a.prediction_loss_only,
                "Evaluate the loss and nothing else, and keep no logits in memory for it");
  verb.add_option(option("--logging-strategy"), o.logging_strategy, "When to write log entries")
      ->check(CLI::IsMember({"no", "steps", "epoch"}));
  verb.add_option(option("--logging-steps"), a.logging_steps,
                  "Updates between log entries; below 1: a ratio of all steps");
  verb.add_flag(option("--logging-first-step"), a.logging_first_step, "Log the first update too");
  verb.add_option(
          option("--save-strategy"), o.save_strategy,
          "When to write OUTPUT_DIR/checkpoint-STEP: model, optimizer state and all else "
          "that going on from there takes; for AdamW three times the model's size each, so "
          "never unless asked for or needed for --load-best-model-at-end. The output folder "
          "itself gets all of that at the end. best: at every evaluation that beats those before "
          "it. Ctrl-C and SIGTERM write one as well")
      ->check(CLI::IsMember({"no", "steps", "epoch", "best"}));
  verb.add_option(option("--save-steps"), a.save_steps,
                  "Updates between checkpoints under steps; below 1: a ratio of all steps");
  verb.add_option(
      option("--save-total-limit"), a.save_total_limit,
      "Checkpoints to keep; older ones are removed, but never the newest and the best (0 or "
      "not given: none are)");
  verb.add_flag(
      option("--save-only-model"), a.save_only_model,
      "Leave optimizer, schedule and random numbers out of checkpoints and output folder");
  verb.add_flag(option("--load-best-model-at-end"), a.load_best_model_at_end,
                "Save the model of the best evaluation instead of the last; needs checkpoints at "
                "evaluations");
  verb.add_option(option("--metric-for-best-model"), a.metric_for_best_model,
                  "What is best: loss (if not given), accuracy, f1 or any other of evaluation");
  verb.add_option(option("--greater-is-better"), a.greater_is_better,
                  "Whether that is (if not given: unless the name ends with loss)");
  verb.add_option(option("--early-stopping-patience"), o.early_stopping_patience,
                  "End when that many evaluations in a row have not improved the metric")
      ->check(CLI::PositiveNumber);
  verb.add_option(option("--early-stopping-threshold"), o.early_stopping_threshold,
                  "By how much it must improve")
      ->check(CLI::NonNegativeNumber);
  verb.add_option(option("--report-to"), o.report_to,
                  "What to write into the output folder, such as jsonl,tensorboard: jsonl (log "
                  "entries to log.jsonl), html (report.html at the end), tensorboard (event files "
                  "in --logging-dir), all or none")
      ->check([](const std::string& list) -> std::string {
        for (const std::string& kind : report_kinds(list)) {
          const bool alone = (kind == "all" || kind == "none") && kind == list;
          if (!alone && kind != "jsonl" && kind != "html" && kind != "tensorboard")
            return fmt::format("{}: must be all, none, or some of jsonl,html,tensorboard", list);
        }
        return "";
      });
  verb.add_option(option("--logging-dir"), o.logging_dir,
                  "Folder of TensorBoard's event files (OUTPUT_DIR/runs/TIME_HOST; a run that goes "
                  "on adds a file to the newest)");
  verb.add_flag(option("--disable-tqdm"), o.disable_tqdm, "Plain lines instead of a progress line");
}

}  // namespace classifier
