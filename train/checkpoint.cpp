#include "train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "optim/schedule.h"
#include "optim/state_file.h"
#include "text/tokenizer_files.h"
#include "train/staged_folder.h"

namespace minim::train {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::string_view prefix = "checkpoint-";

void write_json(const std::string& path, const json& value) {
  write_whole_file(path, value.dump(2) + "\n");
}

json scheduler_json(const TrainingArguments& arguments, const TrainerState& state) {
  const optim::ScheduleOptions options = arguments.schedule_options(state.max_steps);
  const optim::Schedule rate = optim::make_schedule(arguments.lr_scheduler_type, options);
  return {{"lr_scheduler_type", arguments.lr_scheduler_type},
          {"base_lrs", {options.lr}},
          {"warmup_steps", options.warmup_steps},
          {"total_steps", options.total_steps ? json(*options.total_steps) : json(nullptr)},
          {"last_epoch", state.global_step},
          {"_step_count", state.global_step + 1},
          {"_last_lr", {rate(state.global_step)}}};
}

json random_json(const Generator& generator, const TrainingArguments& arguments,
                 const TrainerState& state) {
  return {{"generator", {{"seed", generator.seed}, {"offset", generator.offset}}},
          {"data_order",
           {{"seed", arguments.data_seed.value_or(arguments.seed)},
            {"epoch", state.data_epoch},
            {"batch", state.data_batch}}}};
}

}  // namespace

void write_checkpoint_files(const std::string& folder, const RunDescription& run,
                            const TrainerState& state, bool model_only) {
  run.model.save_pretrained(folder);
  text::save_tokenizer(run.tokenizer, folder);
  write_whole_file(folder + "/training_args.json",
                   training_args_json(run.arguments, run.optimizer.name(), run.further));
  write_whole_file(folder + "/trainer_state.json", trainer_state_json(state, run.arguments));
  if (model_only) return;
  optim::save_state(run.optimizer, folder + "/optimizer.safetensors");
  write_json(folder + "/scheduler.json", scheduler_json(run.arguments, state));
  if (state.scaler)
    write_json(folder + "/scaler.json", {{"scale", state.scaler->scale},
                                         {"_growth_tracker", state.scaler->growth_tracker},
                                         {"skipped_steps", state.scaler->skipped_steps}});
  write_json(folder + "/rng_state.json", random_json(run.model.generator(), run.arguments, state));
}

std::vector<CheckpointFolder> list_checkpoints(const std::string& output_dir) {
  std::vector<CheckpointFolder> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(output_dir, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix) || !entry.is_directory(ignored) || entry.is_symlink(ignored))
      continue;
    int64_t step = 0;
    const char* const end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + prefix.size(), end, step);
    if (parsed.ec == std::errc() && parsed.ptr == end && step >= 0)
      found.push_back({step, entry.path().string()});
  }
  std::ranges::sort(found, {}, &CheckpointFolder::step);
  return found;
}

std::string find_optimizer_state(const std::string& path) {
  constexpr const char* file = "/optimizer.safetensors";
  if (!fs::is_directory(path)) return path;
  if (fs::exists(path + file)) return path + file;
  const std::vector<CheckpointFolder> checkpoints = list_checkpoints(path);
  for (size_t i = checkpoints.size(); i-- > 0;)
    if (fs::exists(checkpoints[i].path + file)) return checkpoints[i].path + file;
  fail(
      "{}: holds no optimizer.safetensors, and neither does a checkpoint in it; train writes it "
      "unless told --save-only-model",
      path);
}

CheckpointCallback::CheckpointCallback(std::string output_dir, RunDescription run, bool replaces)
    : output_dir_(std::move(output_dir)), run_(std::move(run)), replaces_(replaces) {}

void CheckpointCallback::on_train_begin(const TrainerState& state) {
  replaces_ = replaces_ && state.global_step == 0;
}

std::string CheckpointCallback::on_save(const TrainerState& state) {
  const std::string name = fmt::format("{}{}", prefix, state.global_step);
  const std::string place = output_dir_ + "/" + name;
  {
    TrainerState told = state;
    if (told.best_global_step == told.global_step) told.best_model_checkpoint = place;
    const StagedFolder staged(output_dir_);
    const bool model_only = run_.arguments.save_only_model && !state.is_interrupted;
    write_checkpoint_files(staged.path(), run_, told, model_only);
    staged.become(name);
  }
  if (std::exchange(replaces_, false))
    for (const auto& [step, path] : list_checkpoints(output_dir_))
      if (step != state.global_step) remove_folder(path);
  if (run_.arguments.save_total_limit.value_or(0) > 0) remove_old(state);
  return place;
}

void CheckpointCallback::remove_old(const TrainerState& state) const {
  const int64_t newest = state.global_step;
  std::vector<CheckpointFolder> all = list_checkpoints(output_dir_);
  const auto is_spared = [&](const CheckpointFolder& entry) {
    return entry.step == newest || entry.step == state.best_global_step;
  };
  const int64_t limit =
      std::max<int64_t>(*run_.arguments.save_total_limit, std::ranges::count_if(all, is_spared));
  std::stable_partition(all.begin(), all.end(),
                        [&](const CheckpointFolder& entry) { return entry.step > newest; });
  auto excess = int64_t(all.size()) - limit;
  for (const CheckpointFolder& entry : all)
    if (!is_spared(entry) && excess-- > 0) remove_folder(entry.path);
}

}  // namespace minim::train
