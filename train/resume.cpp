#include "train/resume.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "core/safetensors.h"
#include "optim/state_file.h"
#include "train/checkpoint.h"

namespace minim::train {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// The places of outputs.
constexpr std::array not_told = {"output_dir", "report_to", "logging_dir"};

// What may differ, and what that does to the rest of the run.
constexpr auto rest_of_schedule = "the learning rate follows the new number of updates";
constexpr auto logs_alone = "that changes the log, not the weights";
constexpr auto files_alone = "that changes which checkpoints there are, not the weights";
constexpr auto evaluation_alone = "that changes evaluations, not the training";
constexpr auto same_contents = "its contents must be the same";
constexpr auto may_differ = std::to_array<std::pair<std::string_view, const char*>>({
    {"num_train_epochs", rest_of_schedule},
    {"max_steps", rest_of_schedule},
    {"gradient_checkpointing", "that changes memory and time, not the weights"},
    {"logging_steps", logs_alone},
    {"logging_strategy", logs_alone},
    {"logging_first_step", logs_alone},
    {"eval_strategy", evaluation_alone},
    {"eval_steps", evaluation_alone},
    {"eval_delay", evaluation_alone},
    {"eval_on_start", evaluation_alone},
    {"per_device_eval_batch_size", evaluation_alone},
    {"bf16_full_eval", evaluation_alone},
    {"fp16_full_eval", evaluation_alone},
    {"prediction_loss_only", evaluation_alone},
    {"validation_file", evaluation_alone},
    {"max_eval_samples", evaluation_alone},
    {"skip_unseen_labels", evaluation_alone},
    {"save_strategy", files_alone},
    {"save_steps", files_alone},
    {"save_total_limit", files_alone},
    {"save_only_model", files_alone},
    {"load_best_model_at_end", "that changes which weights are kept at the end"},
    {"ignore_data_skip", "with it the epoch at hand begins anew, so that the result is another"},
    {"non_finite_patience", "that changes when the run ends"},
    {"early_stopping_patience", "that changes when the run ends"},
    {"early_stopping_threshold", "that changes when the run ends"},
    {"train_file", same_contents},
    {"model_name_or_path", "the weights are those of the checkpoint"},
});

json read_json(const std::string& path) {
  try {
    return json::parse(read_whole_file(path));
  } catch (const json::exception&) {
    fail("{}: is not JSON; the checkpoint is damaged, choose another one", path);
  }
}

// Reads with `use`; a member that is missing or of another type is damage.
template <class Use>
void read_members(const std::string& path, Use&& use) {
  const json object = read_json(path);
  try {
    use(object);
  } catch (const json::exception& error) {
    fail("{}: is no such file as a checkpoint has ({})", path, error.what());
  }
}

// null stands for numbers that are not finite.
double number(const json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

Metrics metrics_of(const json& object) {
  Metrics metrics;
  for (const auto& [name, value] : object.items())
    if (name != "step") metrics.emplace_back(name, number(value));
  if (object.contains("step")) metrics.emplace_back("step", number(object["step"]));
  return metrics;
}

int64_t step_of(const std::string& folder) {
  int64_t step = 0;
  read_members(folder + "/trainer_state.json",
               [&](const json& state) { step = state.at("global_step"); });
  return step;
}

}  // namespace

bool is_resumable(const std::string& folder) {
  const auto has = [&](const char* name) { return fs::exists(folder + "/" + name); };
  return has("config.json") && has("model.safetensors") && has("trainer_state.json") &&
         has("optimizer.safetensors") && has("rng_state.json");
}

std::string find_checkpoint(const std::string& folder) {
  check(fs::is_directory(folder), "{}: no such folder; there is nothing to resume from", folder);
  const std::vector<CheckpointFolder> all = list_checkpoints(folder);
  for (size_t i = all.size(); i-- > 0;)
    if (is_resumable(all[i].path)) {
      const bool is_newer = is_resumable(folder) && step_of(folder) > all[i].step;
      return is_newer ? folder : all[i].path;
    }
  if (is_resumable(folder)) return folder;
  check(all.empty() && !fs::exists(folder + "/model.safetensors"),
        "{}: holds a model without optimizer state or random numbers, as --save-only-model and "
        "--load-best-model-at-end leave it; no run can be resumed from it",
        folder);
  fail(
      "{}: holds no checkpoint to resume from; begin anew without --resume-from-checkpoint, and "
      "with --save-strategy steps or epoch",
      folder);
}

bool is_inside(const std::string& folder, const std::string& outer) {
  std::error_code ignored;
  return !folder.empty() && (fs::equivalent(folder, outer, ignored) ||
                             fs::equivalent(fs::path(folder) / "..", outer, ignored));
}

std::vector<std::string> check_same_run(const std::string& checkpoint,
                                        const TrainingArguments& arguments,
                                        std::string_view optimizer, const NamedArguments& further) {
  const json now = json::parse(training_args_json(arguments, optimizer, further));
  const json before = read_json(checkpoint + "/training_args.json");
  std::vector<std::string> notes;
  std::string refused;
  for (const auto& [name, value] : now.items()) {
    if (!before.contains(name) || before[name] == value) continue;
    if (std::ranges::count(not_told, name) > 0 ||
        (optimizer.empty() && (name == "optim" || name == "class_weights")))
      continue;
    const auto* const allowed =
        std::ranges::find(may_differ, name, [](const auto& entry) { return entry.first; });
    if (allowed != may_differ.end())
      notes.push_back(fmt::format("{}: is {}, {} had {}; {}", name, value.dump(), checkpoint,
                                  before[name].dump(), allowed->second));
    else
      refused += fmt::format("{}{} is {} instead of {}", refused.empty() ? "" : ", ", name,
                             value.dump(), before[name].dump());
  }
  check(refused.empty(),
        "{}: {}; a resumed run must have the options that it began with, as far as they decide its "
        "result",
        checkpoint, refused);
  return notes;
}

void restore_checkpoint(const std::string& checkpoint,
                        models::DistilBertForSequenceClassification& model,
                        optim::AnyOptimizer& optimizer, TrainerState& state) {
  check(is_resumable(checkpoint),
        "{}: is no checkpoint to resume from; it must hold config.json, model.safetensors, "
        "trainer_state.json, optimizer.safetensors and rng_state.json",
        checkpoint);
  TrainerState read;
  read_members(checkpoint + "/trainer_state.json", [&](const json& file) {
    const json& callbacks = file.at("stateful_callbacks");
    const json& ours = callbacks.at("Trainer").at("attributes");
    read.global_step = file.at("global_step");
    read.epoch = file.at("epoch");
    read.tokens = file.at("num_input_tokens_seen");
    read.total_flos = file.at("total_flos");
    read.total_loss = number(ours.at("total_loss"));
    read.loss_since_log = number(ours.at("loss_since_log"));
    read.logged_step = ours.at("logged_step");
    read.non_finite_steps = ours.value("non_finite_steps", int64_t(0));
    read.non_finite_in_a_row = ours.value("non_finite_in_a_row", int64_t(0));
    read.seconds = ours.at("seconds");
    read.optimizer_seconds = ours.at("optimizer_seconds");
    read.learning_rate = ours.at("learning_rate");
    read.loss = number(ours.at("loss"));
    read.grad_norm = number(ours.at("grad_norm"));
    read.train_set_hash = ours.at("train_set_hash");
    for (const json& entry : file.at("log_history"))
      read.log_history.push_back(metrics_of(entry));
    if (!file.at("best_metric").is_null()) read.best_metric = file["best_metric"].get<double>();
    if (!file.at("best_global_step").is_null())
      read.best_global_step = file["best_global_step"].get<int64_t>();
    for (const auto& [name, entry] : callbacks.items())
      if (name != "Trainer")
        read.stateful_callbacks.emplace_back(name, metrics_of(entry.at("attributes")));
  });
  Generator generator;
  read_members(checkpoint + "/rng_state.json", [&](const json& file) {
    generator = {file.at("generator").at("seed"), file.at("generator").at("offset")};
    read.data_epoch = file.at("data_order").at("epoch");
    read.data_batch = file.at("data_order").at("batch");
  });
  if (state.scaler)
    read_members(checkpoint + "/scaler.json", [&](const json& file) {
      read.scaler = {.scale = file.at("scale"),
                     .growth_tracker = file.at("_growth_tracker"),
                     .skipped_steps = file.at("skipped_steps")};
    });
  check(read.train_set_hash == state.train_set_hash,
        "{}: its run had other training data (or another tokenizer); a resumed run must see the "
        "rows that it began with",
        checkpoint);
  check(read.global_step <= state.max_steps,
        "{}: has done {} updates already, and this run is to end after {}; give more "
        "num_train_epochs or max_steps",
        checkpoint, read.global_step, state.max_steps);
  // The Trainer's own entry at the end of a finished run; there will be another.
  std::erase_if(read.log_history, [](const Metrics& entry) {
    return std::ranges::any_of(entry, [](const auto& m) { return m.first == "train_runtime"; });
  });

  optim::load_state(optimizer, checkpoint + "/optimizer.safetensors");
  load_weights(checkpoint, model);
  model.generator() = generator;

  // Where the best checkpoint is, the folder may have moved since.
  if (read.best_global_step) {
    const std::string name = fmt::format("checkpoint-{}", *read.best_global_step);
    const std::string beside =
        (fs::path(checkpoint).lexically_normal().parent_path() / name).string();
    const std::string within = fmt::format("{}/{}", checkpoint, name);
    for (const std::string& place : {beside, within})
      if (read.best_model_checkpoint.empty() && fs::exists(place + "/model.safetensors"))
        read.best_model_checkpoint = place;
  }
  read.max_steps = state.max_steps;
  read.num_train_epochs = state.num_train_epochs;
  state = std::move(read);
}

void load_weights(const std::string& folder,
                  const models::DistilBertForSequenceClassification& model) {
  const std::string path = folder + "/model.safetensors";
  const NamedTensors values = read_safetensors(path).named_tensors();
  try {
    model.load_state_dict(values);
  } catch (const Error& error) {
    fail("{}: {}", path, error.what());
  }
}

}  // namespace minim::train
