#include "train/run_folder.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <unistd.h>

#include <fmt/format.h>

#include "core/file.h"
#include "train/checkpoint.h"
#include "train/memory_ledger.h"
#include "train/staged_folder.h"

namespace minim::train {

namespace fs = std::filesystem;

JsonLogCallback::JsonLogCallback(const std::string& folder) : path_(folder + "/log.jsonl") {
  std::error_code error;
  fs::create_directories(folder, error);
  check(!error, "{}: the folder cannot be made ({})", folder, error.message());
  open();
}

JsonLogCallback::~JsonLogCallback() {
  if (file_ != nullptr) std::fclose(file_);
}

void JsonLogCallback::open() {
  if (file_ != nullptr) std::fclose(file_);
  file_ = std::fopen(path_.c_str(), "a");
  check(file_ != nullptr, "{}: cannot be written ({})", path_, std::strerror(errno));
}

void JsonLogCallback::on_train_begin(const TrainerState& state) {
  std::string lines;
  for (const Metrics& entry : state.log_history)
    lines += metrics_line(entry) + "\n";
  write_whole_file(path_, lines);
  open();
}

void JsonLogCallback::write(const TrainerState& state, const Metrics& entry) {
  Metrics line = entry;
  line.emplace_back("step", double(state.global_step));
  const bool ok =
      std::fputs((metrics_line(line) + "\n").c_str(), file_) >= 0 && std::fflush(file_) == 0;
  check(ok, "{}: cannot be written ({})", path_, std::strerror(errno));
}

void JsonLogCallback::on_log(const TrainerState& state, const Metrics& logs) {
  write(state, logs);
}

void JsonLogCallback::on_evaluate(const TrainerState& state, const Metrics& metrics) {
  write(state, metrics);
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

void save_run(const std::string& folder, const RunDescription& run, const TrainerState& state,
              const Metrics& train_results, const Metrics& eval_results) {
  const StagedFolder staged(folder);
  const std::string& place = staged.path();
  const bool model_only = run.arguments.save_only_model || run.arguments.load_best_model_at_end;
  write_checkpoint_files(place, run, state, model_only);
  write_whole_file(place + "/train_results.json", metrics_json(train_results));
  if (!eval_results.empty())
    write_whole_file(place + "/eval_results.json", metrics_json(eval_results));
  const MemoryLedger ledger(run, state);
  write_whole_file(
      place + "/all_results.json",
      all_results_json(train_results, eval_results, state, ledger, MeasuredMemory(ledger.device)));
  staged.merge({"eval_results.json", "report.html", "optimizer.safetensors", "scheduler.json",
                "rng_state.json"});
}

}  // namespace minim::train
