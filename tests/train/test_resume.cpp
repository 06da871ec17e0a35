#include <csignal>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/file.h"
#include "optim/make_optimizer.h"
#include "tests/train/small_model.h"
#include "train/checkpoint.h"
#include "train/early_stopping.h"
#include "train/interrupt.h"
#include "train/resume.h"
#include "train/run_folder.h"

// A run that goes on from a checkpoint is the run that was left alone.
using namespace minim;
using namespace minim::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// Stops the process of a run as a signal would.
struct InterruptAt : train::TrainerCallback {
  explicit InterruptAt(int64_t s) : step(s) {}
  void control(const TrainerState& state, train::TrainerControl& control) override {
    control.should_interrupt = state.global_step == step;
  }
  int64_t step;
};

// 20 rows in batches of 3: 7 batches, 4 updates an epoch.
TrainingArguments arguments_for(const std::string& optimizer) {
  TrainingArguments arguments{.per_device_train_batch_size = 3,
                              .max_steps = 10,
                              .gradient_accumulation_steps = 2,
                              .optim = optimizer,
                              .learning_rate = 1e-2,
                              .warmup_steps = 2,
                              .neftune_noise_alpha = 5,
                              .eval_strategy = IntervalStrategy::steps,
                              .logging_steps = 3,
                              .eval_steps = 2,
                              .save_strategy = IntervalStrategy::steps,
                              .save_steps = 2,
                              .metric_for_best_model = "loss"};
  if (optimizer == "adam8bit") arguments.optim_args = "min_8bit_size=64,block_size=64";
  return arguments;
}

struct SavedRun {
  SavedRun(const std::string& folder, const TrainingArguments& given, int64_t rows = 20)
      : arguments(given),
        model(small_model(0.25)),
        optimizer(optim::make_optimizer(arguments.optim, optim::decay_groups(model, 0.01),
                                        arguments.optimizer_arguments())),
        trainer(model, arguments, small_set(rows), small_set(6), *optimizer) {
    trainer.add_callback(std::make_shared<train::CheckpointCallback>(
        folder, train::RunDescription{model, tokenizer, *optimizer, arguments}));
    trainer.add_callback(std::make_shared<train::JsonLogCallback>(folder));
    trainer.add_callback(std::make_shared<train::EarlyStoppingCallback>(arguments, 99));
  }

  TrainingArguments arguments;
  text::Tokenizer tokenizer = small_tokenizer();
  DistilBertForSequenceClassification model;
  std::unique_ptr<optim::AnyOptimizer> optimizer;
  Trainer trainer;
};

std::string interrupt_at(int64_t step, const std::string& folder,
                         const TrainingArguments& arguments) {
  SavedRun run(folder, arguments);
  run.trainer.add_callback(std::make_shared<InterruptAt>(step));
  try {
    run.trainer.train();
  } catch (const train::Interrupted& interrupted) {
    return interrupted.what();
  }
  return "";
}

json log_without_times(const std::string& path) {
  json lines = json::array();
  std::string text = read_whole_file(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(json::parse(text.substr(at, end - at)));
    for (const char* name : {"eval_runtime", "eval_samples_per_second", "eval_steps_per_second"})
      lines.back().erase(name);
    at = end + 1;
  }
  return lines;
}

}  // namespace

TEST_CASE("with ignore_data_skip a resumed run begins its epoch anew") {
  const TemporaryFolder folder;
  TrainingArguments arguments = arguments_for("adamw");
  interrupt_at(2, folder.path(), arguments);
  const std::string place = folder / "checkpoint-2";
  arguments.ignore_data_skip = true;
  CHECK(train::check_same_run(place, arguments, "adamw") ==
        std::vector<std::string>{"ignore_data_skip: is true, " + place +
                                 " had false; with it the epoch at hand begins anew, so that the "
                                 "result is another"});
  SavedRun run(folder.path(), arguments);
  const auto recorder = std::make_shared<Recorder>();
  run.trainer.add_callback(recorder);
  run.trainer.train({.resume_from_checkpoint = place});
  REQUIRE(recorder->steps.size() == 8);
  // Seven batches an epoch, two to an update: the third is that of batches 0 and 1 again.
  CHECK(recorder->steps[0].global_step == 3);
  CHECK(recorder->steps[0].epoch == doctest::Approx(2.0 / 7));
  CHECK(recorder->steps[3].epoch == 1);
  CHECK(recorder->steps[7].epoch == 2);
}

TEST_CASE("interrupted after any update and resumed, a run ends with the same bits") {
  for (const char* optimizer : {"adamw", "adafactor", "adam8bit", "sgd"}) {
    CAPTURE(optimizer);
    const TrainingArguments arguments = arguments_for(optimizer);
    const TemporaryFolder alone_folder;
    SavedRun alone(alone_folder.path(), arguments);
    const Metrics expected = alone.trainer.train();
    for (int64_t step = 1; step < 10; ++step) {
      CAPTURE(step);
      const TemporaryFolder folder;
      const std::string place = folder / ("checkpoint-" + std::to_string(step));
      CHECK(interrupt_at(step, folder.path(), arguments) ==
            "interrupted after step " + std::to_string(step) + " of 10; saved to " + place);
      CHECK(train::find_checkpoint(folder.path()) == place);
      SavedRun resumed(folder.path(), arguments);
      const Metrics result = resumed.trainer.train({.resume_from_checkpoint = place});
      CHECK(value_of(result, "train_loss") == value_of(expected, "train_loss"));
      CHECK(value_of(result, "epoch") == value_of(expected, "epoch"));
      for (const char* file :
           {"model.safetensors", "optimizer.safetensors", "rng_state.json", "scheduler.json"})
        CHECK(read_whole_file(folder / "checkpoint-10/" + file) ==
              read_whole_file(alone_folder / "checkpoint-10/" + file));
      CHECK(log_without_times(folder / "log.jsonl") ==
            log_without_times(alone_folder / "log.jsonl"));
      CHECK(resumed.trainer.state().tokens == alone.trainer.state().tokens);
      CHECK(resumed.trainer.state().best_metric == alone.trainer.state().best_metric);
      CHECK(resumed.trainer.state().best_global_step == alone.trainer.state().best_global_step);
      CHECK(resumed.trainer.state().log_history.size() == alone.trainer.state().log_history.size());
    }
  }
}

TEST_CASE("a finished run resumes to its end at once, or goes on for more epochs") {
  const TemporaryFolder folder;
  TrainingArguments arguments = arguments_for("adamw");
  SavedRun first(folder.path(), arguments);
  first.trainer.train();
  const std::string last = train::find_checkpoint(folder.path());
  CHECK(last == folder / "checkpoint-10");
  SavedRun again(folder.path(), arguments);
  again.trainer.train({.resume_from_checkpoint = last});
  CHECK(again.trainer.state().global_step == 10);
  CHECK(again.model.classifier.weight.to_vector<float>() ==
        first.model.classifier.weight.to_vector<float>());

  arguments.max_steps = 12;
  arguments.logging_steps = 4;
  arguments.gradient_checkpointing = true;
  CHECK(train::check_same_run(last, arguments, "adamw") ==
        std::vector<std::string>{
            "gradient_checkpointing: is true, " + last +
                " had false; that changes memory and time, not the weights",
            "logging_steps: is 4, " + last + " had 3; that changes the log, not the weights",
            "max_steps: is 12, " + last +
                " had 10; the learning rate follows the new number of updates"});
  SavedRun more(folder.path(), arguments);
  more.trainer.train({.resume_from_checkpoint = last});
  CHECK(more.trainer.state().global_step == 12);

  arguments.max_steps = 4;
  SavedRun fewer(folder.path(), arguments);
  CHECK(error_of([&] { fewer.trainer.train({.resume_from_checkpoint = last}); }) ==
        last +
            ": has done 10 updates already, and this run is to end after 4; give more "
            "num_train_epochs or max_steps");
}

TEST_CASE("arguments that decide the result, and other data, are refused") {
  const TemporaryFolder folder;
  const TrainingArguments arguments = arguments_for("adamw");
  interrupt_at(2, folder.path(), arguments);
  const std::string place = folder / "checkpoint-2";
  const auto error = [&](TrainingArguments other, int64_t rows = 20) {
    SavedRun run(folder.path(), other, rows);
    return error_of([&] { run.trainer.train({.resume_from_checkpoint = place}); });
  };
  const std::string why =
      "; a resumed run must have the options that it began with, as far as they decide its result";
  TrainingArguments other = arguments;
  other.learning_rate = 0.5;
  other.seed = 1;
  CHECK(error(other) ==
        place + ": learning_rate is 0.5 instead of 0.01, seed is 1 instead of 42" + why);
  other = arguments;
  other.optim = "adafactor";
  CHECK(error(other) == place + ": optim is \"adafactor\" instead of \"adamw\"" + why);
  for (auto change : std::vector<std::function<void(TrainingArguments&)>>{
           [](auto& a) { a.per_device_train_batch_size = 4; },
           [](auto& a) { a.gradient_accumulation_steps = 1; },
           [](auto& a) { a.lr_scheduler_type = "cosine"; }, [](auto& a) { a.warmup_steps = 0; },
           [](auto& a) { a.max_grad_norm = 0; }, [](auto& a) { a.data_seed = 3; },
           [](auto& a) { a.adam_beta2 = 0.9; },
           [](auto& a) { a.train_sampling_strategy = text::SamplingStrategy::sequential; }}) {
    other = arguments;
    change(other);
    CHECK(error(other).ends_with(why));
  }
  CHECK(error(arguments, 21) ==
        place +
            ": its run had other training data (or another tokenizer); a resumed run must see the "
            "rows that it began with");
}

TEST_CASE("a checkpoint that is damaged or has only the model is refused by name") {
  const TemporaryFolder folder;
  const TrainingArguments arguments = arguments_for("adamw");
  const auto error = [&](const std::string& place) {
    SavedRun run(folder.path(), arguments);
    return error_of([&] { run.trainer.train({.resume_from_checkpoint = place}); });
  };
  interrupt_at(2, folder.path(), arguments);
  const std::string place = folder / "checkpoint-2";
  for (const char* file : {"trainer_state.json", "rng_state.json", "training_args.json"}) {
    const std::string path = place + "/" + file, text = read_whole_file(path);
    write_whole_file(path, text.substr(0, text.size() / 2));
    CHECK(error(place) == path + ": is not JSON; the checkpoint is damaged, choose another one");
    write_whole_file(path, "{}");
    if (file != std::string("training_args.json"))
      CHECK(error(place).starts_with(path + ": is no such file as a checkpoint has ("));
    write_whole_file(path, text);
  }
  fs::resize_file(place + "/optimizer.safetensors", 100);
  CHECK(error(place).starts_with(place + "/optimizer.safetensors: "));
  fs::remove(place + "/optimizer.safetensors");
  CHECK(error(place) ==
        place +
            ": is no checkpoint to resume from; it must hold config.json, model.safetensors, "
            "trainer_state.json, optimizer.safetensors and rng_state.json");
  CHECK(error_of([&] { train::find_checkpoint(folder.path()); }) ==
        folder.path() +
            ": holds a model without optimizer state or random numbers, as --save-only-model and "
            "--load-best-model-at-end leave it; no run can be resumed from it");
  CHECK(error_of([&] { train::find_checkpoint(folder / "none"); }) ==
        folder / "none: no such folder; there is nothing to resume from");
  const TemporaryFolder empty;
  CHECK(error_of([&] { train::find_checkpoint(empty.path()); }) ==
        empty.path() +
            ": holds no checkpoint to resume from; begin anew without --resume-from-checkpoint, "
            "and with --save-strategy steps or epoch");
}

TEST_CASE("an interrupted run saves all that resuming takes, whatever is saved otherwise") {
  const TemporaryFolder folder;
  TrainingArguments arguments = arguments_for("adamw");
  arguments.save_only_model = true;
  arguments.save_strategy = IntervalStrategy::no;
  interrupt_at(3, folder.path(), arguments);
  CHECK(train::is_resumable(folder / "checkpoint-3"));
}

TEST_CASE("a signal ends a run after the update, and what it did before is put back") {
  REQUIRE((std::signal(SIGINT, SIG_DFL) != SIG_ERR));
  const TemporaryFolder folder;
  {
    SavedRun run(folder.path(), arguments_for("adamw"));
    run.trainer.add_callback(std::make_shared<train::InterruptCallback>());
    struct Raise : train::TrainerCallback {
      void on_step_end(const TrainerState& state) override {
        if (state.global_step == 3) std::raise(SIGINT);
      }
    };
    run.trainer.add_callback(std::make_shared<Raise>());
    CHECK_THROWS_AS(run.trainer.train(), train::Interrupted);
    CHECK(run.trainer.state().global_step == 3);
    CHECK(train::InterruptCallback::signal() == SIGINT);
    // A second signal would end the process.
    CHECK((std::signal(SIGTERM, SIG_DFL) == SIG_DFL));
  }
  CHECK((std::signal(SIGINT, SIG_DFL) == SIG_DFL));
  std::signal(SIGINT, SIG_IGN);
  {
    const train::InterruptCallback ignores;
    std::raise(SIGINT);
    CHECK(ignores.signal() == 0);
  }
  CHECK((std::signal(SIGINT, SIG_DFL) == SIG_IGN));
}
