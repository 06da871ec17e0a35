#include <filesystem>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "core/file.h"
#include "optim/clip.h"
#include "optim/make_optimizer.h"
#include "optim/schedule.h"
#include "optim/state_file.h"
#include "tests/core/read_json.h"
#include "tests/train/small_model.h"
#include "text/sampler.h"
#include "text/tokenizer_files.h"
#include "train/checkpoint.h"

// What is kept of a run on its way, and that it is enough to go on.
using namespace minim;
using namespace minim::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

// A run of 20 rows in batches of 4, five updates an epoch, that writes checkpoints to a folder.
struct CheckpointedRun {
  CheckpointedRun(const std::string& folder, TrainingArguments given)
      : arguments(std::move(given)),
        model(small_model(0.25)),
        optimizer(optim::make_optimizer(arguments.optim, optim::decay_groups(model, 0.01),
                                        arguments.optimizer_arguments())),
        trainer(model, arguments, small_set(20), {}, *optimizer) {
    trainer.add_callback(std::make_shared<train::CheckpointCallback>(
        folder, train::RunDescription{model, tokenizer, *optimizer, arguments}));
    trainer.add_callback(recorder);
  }

  TrainingArguments arguments;
  text::Tokenizer tokenizer = small_tokenizer();
  DistilBertForSequenceClassification model;
  std::unique_ptr<optim::AnyOptimizer> optimizer;
  Trainer trainer;
  std::shared_ptr<Recorder> recorder = std::make_shared<Recorder>();
};

// Steps of the checkpoints that a run leaves.
std::vector<int64_t> saved_at(TrainingArguments arguments) {
  const TemporaryFolder folder;
  arguments.per_device_train_batch_size = 4;
  CheckpointedRun run(folder.path(), std::move(arguments));
  run.trainer.train();
  std::vector<int64_t> steps;
  for (const train::CheckpointFolder& entry : train::list_checkpoints(folder.path()))
    steps.push_back(entry.step);
  CHECK(folder.files().size() == steps.size());  // and nothing else
  return steps;
}

using Steps = std::vector<int64_t>;

}  // namespace

TEST_CASE("checkpoints are written never, each epoch, or by steps, and then at the end as well") {
  CHECK(saved_at({.num_train_epochs = 2}).empty());
  CHECK(saved_at({.num_train_epochs = 2, .save_strategy = IntervalStrategy::epoch}) ==
        Steps{5, 10});
  CHECK(saved_at({.max_steps = 7, .save_strategy = IntervalStrategy::epoch}) == Steps{5, 7});
  CHECK(saved_at({.max_steps = 7, .save_strategy = IntervalStrategy::steps, .save_steps = 3}) ==
        Steps{3, 6, 7});
  // A ratio of all steps, rounded up: 0.3 * 8 = 2.4.
  CHECK(saved_at({.max_steps = 8, .save_strategy = IntervalStrategy::steps, .save_steps = 0.3}) ==
        Steps{3, 6, 8});
  CHECK(saved_at({.max_steps = 2, .save_strategy = IntervalStrategy::steps}) ==
        Steps{2});  // of 500
}

TEST_CASE("only the last checkpoints are kept where there is a limit") {
  const auto kept = [](std::optional<int64_t> limit) {
    return saved_at({.max_steps = 5,
                     .save_strategy = IntervalStrategy::steps,
                     .save_steps = 1,
                     .save_total_limit = limit});
  };
  CHECK(kept({}) == Steps{1, 2, 3, 4, 5});
  CHECK(kept(0) == Steps{1, 2, 3, 4, 5});
  CHECK(kept(2) == Steps{4, 5});
  CHECK(kept(1) == Steps{5});
}

TEST_CASE("the limit spares what is no checkpoint, and the newest even where others look newer") {
  const TemporaryFolder folder;
  for (const char* name : {"checkpoint-900", "checkpoint-", "checkpoint-1x", "checkpoint--1", "x"})
    fs::create_directory(folder / name);
  write_whole_file(folder / "checkpoint-1000", "a file");
  CheckpointedRun run(folder.path(), {.max_steps = 2,
                                      .save_strategy = IntervalStrategy::steps,
                                      .save_steps = 1,
                                      .save_total_limit = 1});
  run.trainer.train();
  CHECK(folder.files() == std::vector<std::string>{"checkpoint-", "checkpoint--1",
                                                   "checkpoint-1000", "checkpoint-1x",
                                                   "checkpoint-2", "x"});
  CHECK(train::list_checkpoints(folder.path()).size() == 1);
  CHECK(train::list_checkpoints(folder / "nowhere").empty());
}

TEST_CASE("a checkpoint is a model folder with all that going on takes beside it") {
  const TemporaryFolder folder;
  CheckpointedRun run(folder.path(), {.per_device_train_batch_size = 4,
                                      .max_steps = 9,
                                      .learning_rate = 1e-3,
                                      .warmup_steps = 2,
                                      .seed = 7,
                                      .logging_steps = 5,
                                      .save_strategy = IntervalStrategy::steps,
                                      .save_steps = 7});
  run.trainer.train();
  const std::string place = folder / "checkpoint-7";
  CHECK(names_in(place) ==
        std::vector<std::string>{"config.json", "model.safetensors", "optimizer.safetensors",
                                 "rng_state.json", "scheduler.json", "special_tokens_map.json",
                                 "tokenizer.json", "tokenizer_config.json", "trainer_state.json",
                                 "training_args.json", "vocab.txt"});
  CHECK(text::load_tokenizer(place).tokenizer.vocab_size() == 30);

  // Five updates make an epoch: two batches of the second have been seen.
  const json random = read_json(place + "/rng_state.json");
  CHECK(random["data_order"] == json({{"seed", 7}, {"epoch", 1}, {"batch", 2}}));
  CHECK(random["generator"]["seed"] == run.model.generator().seed);
  CHECK(random["generator"]["offset"] > 0);
  const json last = read_json(folder / "checkpoint-9/rng_state.json");
  CHECK(last["generator"]["offset"] == run.model.generator().offset);

  // Linear: up over 2 steps, down over the 7 that remain; update 8 uses the rate of step 7.
  const json scheduler = read_json(place + "/scheduler.json");
  CHECK(scheduler["last_epoch"] == 7);
  CHECK(scheduler["base_lrs"] == json({1e-3}));
  CHECK(scheduler["_last_lr"][0] == doctest::Approx(1e-3 * 2 / 7).epsilon(1e-12));
  CHECK(run.recorder->steps[7].learning_rate == scheduler["_last_lr"][0]);

  const TrainerState& then = run.recorder->steps[6];
  const json state = read_json(place + "/trainer_state.json");
  CHECK(state["global_step"] == 7);
  CHECK(state["epoch"] == then.epoch);
  CHECK(state["num_input_tokens_seen"] == then.tokens);
  CHECK(state["log_history"].size() == 1);
  const json& sums = state["stateful_callbacks"]["Trainer"]["attributes"];
  CHECK(sums["total_loss"] == then.total_loss);  // to the last bit
  CHECK(sums["loss_since_log"] == run.recorder->steps[5].loss + run.recorder->steps[6].loss);
  CHECK(sums["logged_step"] == 5);
}

TEST_CASE("an epoch that has been seen in full is followed by the first batch of the next") {
  const TemporaryFolder folder;
  CheckpointedRun run(folder.path(), {.per_device_train_batch_size = 4,
                                      .num_train_epochs = 1,
                                      .gradient_accumulation_steps = 2,
                                      .save_strategy = IntervalStrategy::steps,
                                      .save_steps = 1});
  run.trainer.train();
  const auto place = [&](const std::string& name) {
    return read_json(folder / (name + "/rng_state.json"))["data_order"];
  };
  CHECK(place("checkpoint-1") == json({{"seed", 42}, {"epoch", 0}, {"batch", 2}}));
  CHECK(place("checkpoint-2") == json({{"seed", 42}, {"epoch", 0}, {"batch", 4}}));
  CHECK(place("checkpoint-3") == json({{"seed", 42}, {"epoch", 1}, {"batch", 0}}));
}

TEST_CASE("from a checkpoint the next update is, bit for bit, that of the run that went on") {
  for (const char* optimizer : {"adamw", "adafactor", "adam8bit"}) {
    CAPTURE(optimizer);
    const TemporaryFolder folder;
    TrainingArguments arguments{.per_device_train_batch_size = 4,
                                .max_steps = 8,
                                .optim = optimizer,
                                .learning_rate = 1e-2,
                                .save_strategy = IntervalStrategy::steps,
                                .save_steps = 7};
    // So that the small model has 8-bit state.
    if (arguments.optim == "adam8bit") arguments.optim_args = "min_8bit_size=64,block_size=64";
    CheckpointedRun run(folder.path(), arguments);
    run.trainer.train();  // eight updates; the checkpoint is of seven

    const std::string place = folder / "checkpoint-7";
    const json random = read_json(place + "/rng_state.json");
    const auto model = DistilBertForSequenceClassification::from_pretrained(place);
    model.train();
    model.generator() = {random["generator"]["seed"], random["generator"]["offset"]};
    const auto resumed = optim::make_optimizer(optimizer, optim::decay_groups(model, 0.01),
                                               arguments.optimizer_arguments());
    optim::load_state(*resumed, place + "/optimizer.safetensors");

    const json& order = random["data_order"];
    const text::Examples set = small_set(20);
    const text::Sampler sampler(20, {.batch_size = 4, .seed = order["seed"]});
    const std::vector<int64_t> rows = sampler.batches(order["epoch"])[order["batch"].get<size_t>()];
    const PackedBatch batch = text::pack(set, rows);
    model.loss(model.forward(batch), batch.labels).backward();
    const double norm = optim::gradient_norm(model.parameters());
    const optim::Schedule rate =
        optim::make_schedule(arguments.lr_scheduler_type, arguments.schedule_options(8));
    resumed->step(rate(read_json(place + "/trainer_state.json")["global_step"]),
                  optim::clip_coefficient(norm, arguments.max_grad_norm));

    const NamedTensors ours = model.parameters(), theirs = run.model.parameters();
    for (size_t i = 0; i < theirs.size(); ++i) {
      CAPTURE(theirs[i].name);
      CHECK(ours[i].tensor.to_vector<float>() == theirs[i].tensor.to_vector<float>());
    }
    const NamedTensors state = resumed->state_dict(), uninterrupted = run.optimizer->state_dict();
    REQUIRE(state.size() == uninterrupted.size());
    for (size_t i = 0; i < state.size(); ++i)
      CHECK(state[i].tensor.to_vector<double>() == uninterrupted[i].tensor.to_vector<double>());
  }
}

TEST_CASE("a checkpoint of the model alone has neither optimizer nor random numbers") {
  const TemporaryFolder folder;
  CheckpointedRun run(
      folder.path(),
      {.max_steps = 1, .save_strategy = IntervalStrategy::epoch, .save_only_model = true});
  run.trainer.train();
  const std::vector<std::string> names = names_in(folder / "checkpoint-1");
  for (const char* name : {"optimizer.safetensors", "scheduler.json", "rng_state.json"})
    CHECK(std::ranges::count(names, name) == 0);
  CHECK(std::ranges::count(names, "model.safetensors") == 1);
}

TEST_CASE(
    "a checkpoint that cannot be written leaves those that are there, and no half of itself") {
  const TemporaryFolder folder;
  const TrainingArguments arguments{.max_steps = 1, .save_strategy = IntervalStrategy::epoch};
  CheckpointedRun(folder.path(), arguments).trainer.train();
  const std::string before = read_whole_file(folder / "checkpoint-1/trainer_state.json");
  // The place where its files are made is taken.
  const std::string staging = folder / (".minim-" + std::to_string(::getpid()) + ".tmp");
  write_whole_file(staging, "in the way");
  CHECK(error_of([&] {
          CheckpointedRun(folder.path(), arguments).trainer.train();
        }).starts_with(staging + ": the folder cannot be made ("));
  fs::remove(staging);
  CHECK(folder.files() == std::vector<std::string>{"checkpoint-1"});
  CHECK(read_whole_file(folder / "checkpoint-1/trainer_state.json") == before);
}

TEST_CASE("what a killed process left under the temporary name does not get into a checkpoint") {
  const TemporaryFolder folder;
  const std::string staging = folder / (".minim-" + std::to_string(::getpid()) + ".tmp");
  fs::create_directory(staging);
  write_whole_file(staging + "/left-over", "");
  CheckpointedRun run(folder.path(), {.max_steps = 1, .save_strategy = IntervalStrategy::epoch});
  run.trainer.train();
  CHECK(!fs::exists(folder / "checkpoint-1/left-over"));
  CHECK(folder.files() == std::vector<std::string>{"checkpoint-1"});
}

TEST_CASE("a checkpoint of the same step replaces the one that is there") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "checkpoint-1");
  write_whole_file(folder / "checkpoint-1/left-over", "");
  CheckpointedRun run(folder.path(), {.max_steps = 1, .save_strategy = IntervalStrategy::epoch});
  run.trainer.train();
  CHECK(!fs::exists(folder / "checkpoint-1/left-over"));
  CHECK(fs::exists(folder / "checkpoint-1/config.json"));
  CHECK(folder.files() == std::vector<std::string>{"checkpoint-1"});
}
