#include <memory>

#include "tests/train/small_model.h"
#include "train/checkpoint.h"

// When a Trainer logs, evaluates and saves. In a Recorder's events "[" and "]" are the ends of the
// run, s is an update, l a log entry and e an evaluation.
using namespace minim;
using namespace minim::test;

namespace {

// Two updates an epoch.
std::unique_ptr<Run> trained(TrainingArguments arguments) {
  arguments.per_device_train_batch_size = 4;
  auto run = std::make_unique<Run>(arguments, 8, 8);
  run->trainer.train();
  return run;
}

// Notes when checkpoints are due, and names them.
struct Saves : train::TrainerCallback {
  std::string on_save(const TrainerState& state) override {
    steps.push_back(state.global_step);
    return "somewhere";
  }
  std::vector<int64_t> steps;
};

}  // namespace

TEST_CASE("eval_on_start evaluates new weights before the first update") {
  Run run({.per_device_train_batch_size = 4, .max_steps = 2, .eval_on_start = true}, 8, 8);
  const Metrics before =
      train::Evaluator(run.model, 8, train::classification_metrics).evaluate(small_set(8)).metrics;
  run.trainer.train();
  CHECK(run.recorder->events == "[essl]");
  const Metrics& first = run.trainer.state().log_history.front();
  CHECK(value_of(first, "eval_loss") == value_of(before, "eval_loss"));
  CHECK(value_of(first, "epoch") == 0);
  CHECK(value_of(first, "step") == 0);
  CHECK(error_of([] { Run({.eval_on_start = true}, 8); }) ==
        "eval_on_start: needs evaluation data; there is none");
}

TEST_CASE("what eval_on_start finds is never the best: no checkpoint has those weights") {
  // The loss falls, and the highest is to be kept; that of the start is the highest.
  const auto run = trained({.num_train_epochs = 4,
                            .learning_rate = 1e-2,
                            .eval_strategy = IntervalStrategy::epoch,
                            .eval_on_start = true,
                            .metric_for_best_model = "loss",
                            .greater_is_better = true});
  CHECK(run->recorder->evaluated_at == std::vector<int64_t>{0, 2, 4, 6, 8});
  CHECK(run->trainer.state().best_global_step != 0);
}

TEST_CASE("eval_delay counts updates under steps and epochs under epoch") {
  CHECK(trained({.max_steps = 4,
                 .eval_strategy = IntervalStrategy::steps,
                 .eval_steps = 1,
                 .eval_delay = 3})
            ->recorder->evaluated_at == std::vector<int64_t>{3, 4});
  CHECK(
      trained({.num_train_epochs = 3, .eval_strategy = IntervalStrategy::epoch, .eval_delay = 1.5})
          ->recorder->evaluated_at == std::vector<int64_t>{4, 6});
}

TEST_CASE("logging_first_step logs the first update, whose loss is in no other entry") {
  const auto run = trained({.max_steps = 4, .logging_steps = 2, .logging_first_step = true});
  CHECK(run->recorder->events == "[slslssl]");
  for (const size_t update : {0, 1})
    CHECK(value_of(run->recorder->logs[update], "loss") == run->recorder->steps[update].loss);
}

TEST_CASE("logging_strategy: never, by epoch or by updates") {
  const auto events = [](IntervalStrategy strategy, bool first = false) {
    return trained({.max_steps = 5,
                    .logging_strategy = strategy,
                    .logging_steps = 3,
                    .logging_first_step = first})
        ->recorder->events;
  };
  CHECK(events(IntervalStrategy::no) == "[sssss]");
  CHECK(events(IntervalStrategy::no, true) == "[slssss]");
  // The end of a run is one of an epoch.
  CHECK(events(IntervalStrategy::epoch) == "[sslsslsl]");
  CHECK(events(IntervalStrategy::steps) == "[ssslssl]");
}

TEST_CASE("steps below 1 are a ratio of all updates, rounded up") {
  // 0.4 * 5 is 2, 0.5 * 5 is 3.
  const TrainingArguments arguments{.max_steps = 5,
                                    .eval_strategy = IntervalStrategy::steps,
                                    .logging_steps = 0.4,
                                    .eval_steps = 0.5,
                                    .save_steps = 0.9};
  const auto run = trained(arguments);
  CHECK(run->recorder->events == "[sslseslsl]");
  const std::string state = train::trainer_state_json(run->trainer.state(), arguments);
  for (const char* part : {"\"logging_steps\": 2,", "\"eval_steps\": 3,", "\"save_steps\": 5,"})
    CHECK(state.find(part) != std::string::npos);
  CHECK(trained({.max_steps = 5, .eval_strategy = IntervalStrategy::steps, .logging_steps = 0.6})
            ->recorder->evaluated_at == std::vector<int64_t>{3});
}

TEST_CASE("save_strategy best saves at evaluations that beat those before, and not at the end") {
  Run run({.per_device_train_batch_size = 4,
           .max_steps = 8,
           .learning_rate = 1e-2,
           .eval_strategy = IntervalStrategy::steps,
           .eval_steps = 1,
           .save_strategy = IntervalStrategy::best,
           .greater_is_better = true},
          8, 8);
  const auto saves = std::make_shared<Saves>();
  run.trainer.add_callback(saves);
  run.trainer.train();
  std::vector<int64_t> expected;
  double best = -1;
  for (size_t i = 0; i < run.recorder->evaluations.size(); ++i)
    if (const double loss = value_of(run.recorder->evaluations[i], "eval_loss"); loss > best) {
      best = loss;
      expected.push_back(int64_t(i) + 1);
    }
  CHECK(saves->steps == expected);
  // The loss, which is the metric unless another is named, falls: few are highest.
  CHECK(expected.size() < 8);
  CHECK(run.trainer.state().best_model_checkpoint == "somewhere");
}

TEST_CASE("the best checkpoint of save_strategy best is loaded at the end") {
  const TemporaryFolder folder;
  const text::Tokenizer tokenizer = small_tokenizer();
  const TrainingArguments arguments{.per_device_train_batch_size = 4,
                                    .max_steps = 6,
                                    .learning_rate = 1e-2,
                                    .eval_strategy = IntervalStrategy::steps,
                                    .eval_steps = 2,
                                    .save_strategy = IntervalStrategy::best,
                                    .load_best_model_at_end = true,
                                    .greater_is_better = true};
  Run run(arguments, 8, 8);
  const train::RunDescription description{run.model, tokenizer, run.optimizer, arguments};
  run.trainer.add_callback(
      std::make_shared<train::CheckpointCallback>(folder / "run", description));
  run.trainer.train();
  const Metrics at_end =
      train::Evaluator(run.model, 8, train::classification_metrics).evaluate(small_set(8)).metrics;
  CHECK(value_of(at_end, "eval_loss") == run.trainer.state().best_metric);
}
