#include "train/run_folder.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "text/tokenizer_files.h"

namespace minim::train {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Whole numbers lose their fraction, NaN and infinities become null: JSON has neither.
json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == std::floor(value) && std::abs(value) < 0x1p53) return int64_t(value);
  return value;
}

json object_of(const Metrics& metrics) {
  json object = json::object();
  for (const auto& [name, value] : metrics)
    object[name] = number(value);
  return object;
}

void write_json(const std::string& path, const json& value) {
  write_whole_file(path, value.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

json arguments_json(const TrainingArguments& a, const std::string& optimizer) {
  const auto strategy = [](IntervalStrategy s) {
    return s == IntervalStrategy::no ? "no" : s == IntervalStrategy::steps ? "steps" : "epoch";
  };
  json object = {{"optim", optimizer},
                 {"per_device_train_batch_size", a.per_device_train_batch_size},
                 {"per_device_eval_batch_size", a.per_device_eval_batch_size},
                 {"num_train_epochs", a.num_train_epochs},
                 {"max_steps", a.max_steps},
                 {"gradient_accumulation_steps", a.gradient_accumulation_steps},
                 {"learning_rate", a.learning_rate},
                 {"lr_scheduler_type", a.lr_scheduler_type},
                 {"warmup_steps", a.warmup_steps},
                 {"warmup_ratio", a.warmup_ratio},
                 {"max_grad_norm", a.max_grad_norm},
                 {"seed", a.seed},
                 {"eval_strategy", strategy(a.eval_strategy)},
                 {"logging_steps", a.logging_steps}};
  object["data_seed"] = a.data_seed ? json(*a.data_seed) : json(nullptr);
  object["train_sampling_strategy"] =
      a.train_sampling_strategy == text::SamplingStrategy::random       ? "random"
      : a.train_sampling_strategy == text::SamplingStrategy::sequential ? "sequential"
                                                                        : "group_by_length";
  return object;
}

json state_json(const TrainerState& state, const TrainingArguments& arguments) {
  json history = json::array();
  for (const Metrics& entry : state.log_history)
    history.push_back(object_of(entry));
  return {{"best_global_step", nullptr},
          {"best_metric", nullptr},
          {"best_model_checkpoint", nullptr},
          {"epoch", state.epoch},
          {"eval_steps", arguments.eval_steps.value_or(arguments.logging_steps)},
          {"global_step", state.global_step},
          {"is_hyper_param_search", false},
          {"is_local_process_zero", true},
          {"is_world_process_zero", true},
          {"log_history", history},
          {"logging_steps", arguments.logging_steps},
          {"max_steps", state.max_steps},
          {"num_input_tokens_seen", state.tokens},
          {"num_train_epochs", int64_t(std::ceil(state.num_train_epochs))},
          {"save_steps", 500},
          {"stateful_callbacks", json::object()},
          {"total_flos", 0},
          {"train_batch_size", arguments.per_device_train_batch_size},
          {"trial_name", nullptr},
          {"trial_params", nullptr}};
}

json ledger_json(const MemoryLedger& ledger) {
  using memory::Category;
  json measured = json::object();
  for (size_t c = 0; c < memory::categories; ++c)
    measured[std::string(memory::name_of(Category(c)))] = {
        {"current", memory::current(Category(c))}, {"peak", memory::peak(Category(c))}};
  return {{"predicted_bytes",
           {{"weights", ledger.predicted_weights},
            {"gradients", ledger.predicted_gradients},
            {"optimizer state", ledger.predicted_optimizer_state}}},
          {"measured_bytes", measured},
          {"measured_peak_bytes", memory::peak()}};
}

// A folder inside another, in which all files are made before any of them replaces an old one. If
// something fails on the way the outer folder is as it was.
class StagedFiles {
 public:
  explicit StagedFiles(const std::string& folder)
      : folder_(folder), staging_(fmt::format("{}/.minim-{}.tmp", folder, ::getpid())) {
    std::error_code error;
    fs::create_directories(staging_, error);
    check(!error, "{}: the folder cannot be made ({})", staging_, error.message());
  }
  ~StagedFiles() {
    std::error_code ignored;
    fs::remove_all(staging_, ignored);
  }
  StagedFiles(const StagedFiles&) = delete;
  StagedFiles& operator=(const StagedFiles&) = delete;

  const std::string& folder() const { return staging_; }

  // Moves the files to their places. config.json, without which a folder is no model, goes first
  // and comes last: a run that is killed meanwhile never leaves a mixture that loads.
  void commit() const {
    std::error_code error;
    for (const char* old : {"/config.json", "/eval_results.json"}) {
      fs::remove(folder_ + old, error);
      check(!error, "{}{}: cannot be replaced ({})", folder_, old, error.message());
    }
    for (const auto& file : fs::directory_iterator(staging_))
      if (file.path().filename() != "config.json") move(file.path().filename());
    move("config.json");
  }

 private:
  void move(const fs::path& name) const {
    std::error_code error;
    fs::rename(fs::path(staging_) / name, fs::path(folder_) / name, error);
    check(!error, "{}/{}: cannot be written ({})", folder_, name.string(), error.message());
  }

  std::string folder_, staging_;
};

}  // namespace

JsonLogCallback::JsonLogCallback(const std::string& folder) : path_(folder + "/log.jsonl") {
  std::error_code error;
  fs::create_directories(folder, error);
  check(!error, "{}: the folder cannot be made ({})", folder, error.message());
  file_ = std::fopen(path_.c_str(), "w");
  check(file_ != nullptr, "{}: cannot be written ({})", path_, std::strerror(errno));
}

JsonLogCallback::~JsonLogCallback() {
  std::fclose(file_);
}

void JsonLogCallback::write(const TrainerState& state, const Metrics& entry) {
  json object = object_of(entry);
  object["step"] = state.global_step;
  const bool ok = std::fputs((object.dump() + "\n").c_str(), file_) >= 0 && std::fflush(file_) == 0;
  check(ok, "{}: cannot be written ({})", path_, std::strerror(errno));
}

void JsonLogCallback::on_log(const TrainerState& state, const Metrics& logs) {
  write(state, logs);
}

void JsonLogCallback::on_evaluate(const TrainerState& state, const Metrics& metrics) {
  write(state, metrics);
}

MemoryLedger::MemoryLedger(const nn::Module& model, const optim::StateSize& optimizer_state)
    : predicted_optimizer_state(optimizer_state.bytes) {
  for (const NamedTensor& parameter : model.parameters()) {
    predicted_weights += parameter.tensor.bytes();
    if (parameter.tensor.requires_grad()) predicted_gradients += parameter.tensor.bytes();
  }
}

void check_writable_folder(const std::string& folder) {
  std::vector<fs::path> made;  // the innermost first
  for (fs::path path = folder; !path.empty() && !fs::exists(path); path = path.parent_path())
    made.push_back(path);
  std::error_code error;
  fs::create_directories(folder, error);
  check(!error, "{}: the folder cannot be made ({}); choose another one", folder, error.message());
  // Permission bits say nothing to root and on some file systems, nor of a full disk; a file does.
  const std::string probe = fmt::format("{}/.minim-{}.tmp", folder, ::getpid());
  const std::string contents(4096, ' ');
  std::FILE* file = std::fopen(probe.c_str(), "w");
  bool ok = file != nullptr && std::fputs(contents.c_str(), file) >= 0;
  ok = ok && std::fflush(file) == 0;
  const int reason = errno;
  if (file != nullptr) std::fclose(file);
  ::unlink(probe.c_str());
  for (const fs::path& path : made)
    fs::remove(path, error);
  check(ok, "{}: the folder cannot be written to ({}); choose another one", folder,
        std::strerror(reason));
}

void save_run(const std::string& folder, const models::DistilBertForSequenceClassification& model,
              const text::Tokenizer& tokenizer, const TrainingArguments& arguments,
              const std::string& optimizer, const TrainerState& state, const Metrics& train_results,
              const Metrics& eval_results, const MemoryLedger& ledger) {
  StagedFiles staged(folder);
  const std::string& place = staged.folder();
  model.save_pretrained(place);
  text::save_tokenizer(tokenizer, place);
  json all = object_of(train_results);
  write_json(place + "/train_results.json", all);
  if (!eval_results.empty()) {
    const json evaluated = object_of(eval_results);
    write_json(place + "/eval_results.json", evaluated);
    all.update(evaluated);
  }
  all["memory"] = ledger_json(ledger);
  write_json(place + "/all_results.json", all);
  write_json(place + "/training_args.json", arguments_json(arguments, optimizer));
  json trainer_state = state_json(state, arguments);
  for (const auto& [name, value] : train_results)
    if (name == "total_flos") trainer_state["total_flos"] = number(value);
  write_json(place + "/trainer_state.json", trainer_state);
  staged.commit();
}

}  // namespace minim::train
