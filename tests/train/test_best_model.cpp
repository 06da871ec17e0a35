#include <cmath>
#include <filesystem>

#include "core/file.h"
#include "optim/adamw.h"
#include "tests/train/small_model.h"
#include "train/checkpoint.h"
#include "train/early_stopping.h"
#include "train/run_folder.h"

// Which evaluation is best, what is kept of it, and when a run ends for want of a better one.
using namespace minim;
using namespace minim::test;
using train::EarlyStoppingCallback;

namespace {

// A run of one update an epoch whose evaluations have given scores.
struct ScoredRun {
  ScoredRun(const std::string& folder, std::vector<double> given, TrainingArguments a)
      : scores(std::move(given)),
        arguments(complete(std::move(a))),
        model(small_model()),
        optimizer(optim::decay_groups(model, 0.01), {.lr = 1e-2}),
        trainer(model, arguments, small_set(8), small_set(4), optimizer,
                [this](const train::EvalPrediction&) {
                  // The first is that of the check before training.
                  const size_t i =
                      std::min(size_t(std::max(evaluations++ - 1, 0)), scores.size() - 1);
                  return Metrics{{"score", scores[i]}};
                }) {
    if (!folder.empty())
      trainer.add_callback(std::make_shared<train::CheckpointCallback>(
          folder, train::RunDescription{model, tokenizer, optimizer, arguments}));
    trainer.add_callback(recorder);
  }
  TrainingArguments complete(TrainingArguments a) const {
    a.per_device_train_batch_size = 8;
    a.num_train_epochs = double(scores.size());
    a.learning_rate = 1e-2;
    a.eval_strategy = IntervalStrategy::epoch;
    if (a.metric_for_best_model.empty()) a.metric_for_best_model = "score";
    return a;
  }

  std::vector<double> scores;
  int evaluations = 0;
  TrainingArguments arguments;
  text::Tokenizer tokenizer = small_tokenizer();
  DistilBertForSequenceClassification model;
  optim::AdamW optimizer;
  Trainer trainer;
  std::shared_ptr<Recorder> recorder = std::make_shared<Recorder>();
};

std::vector<int64_t> steps_in(const std::string& folder) {
  std::vector<int64_t> steps;
  for (const auto& entry : train::list_checkpoints(folder))
    steps.push_back(entry.step);
  return steps;
}
using Steps = std::vector<int64_t>;

// Updates of a run that stops early.
int64_t stops_at(const std::vector<double>& scores, int64_t patience, double threshold = 0,
                 std::optional<bool> greater_is_better = {}) {
  ScoredRun run("", scores, {.greater_is_better = greater_is_better});
  run.trainer.add_callback(
      std::make_shared<EarlyStoppingCallback>(run.arguments, patience, threshold));
  run.trainer.train();
  return run.trainer.state().global_step;
}

}  // namespace

TEST_CASE("the best evaluation is the first of the greatest, or smallest, values") {
  const auto best = [](std::vector<double> scores, std::optional<bool> greater = {}) {
    ScoredRun run("", std::move(scores), {.greater_is_better = greater});
    run.trainer.train();
    return run.trainer.state().best_global_step;
  };
  CHECK(best({0.5, 0.7, 0.7, 0.6}) == 2);  // as good is not better
  CHECK(best({0.5, 0.7, 0.4, 0.4}, false) == 3);
  CHECK(best({NAN, 0.7, NAN, 0.8}) == 4);
  CHECK(!best({NAN, NAN}));
  CHECK(TrainingArguments{.metric_for_best_model = "loss"}.is_better(1, 2));
  CHECK(TrainingArguments{.metric_for_best_model = "eval_loss"}.best_metric_name() == "eval_loss");
  CHECK(TrainingArguments{.load_best_model_at_end = true}.best_metric_name() == "eval_loss");
  CHECK(TrainingArguments{}.best_metric_name().empty());
}

TEST_CASE("at the end the weights are those of the best checkpoint") {
  const TemporaryFolder folder;
  ScoredRun run(folder.path(), {0.5, 0.9, 0.6, 0.7},
                {.save_strategy = IntervalStrategy::epoch, .load_best_model_at_end = true});
  run.trainer.train();
  const TrainerState& state = run.trainer.state();
  CHECK(state.best_metric == 0.9);
  CHECK(state.best_model_checkpoint == folder / "checkpoint-2");
  const auto saved = DistilBertForSequenceClassification::from_pretrained(folder / "checkpoint-2");
  const auto last = DistilBertForSequenceClassification::from_pretrained(folder / "checkpoint-4");
  CHECK(run.model.classifier.weight.to_vector<float>() ==
        saved.classifier.weight.to_vector<float>());
  CHECK(run.model.classifier.weight.to_vector<float>() !=
        last.classifier.weight.to_vector<float>());
  // The optimizer's state is not of these weights, so the folder of the run is no checkpoint.
  train::save_run(folder / "run", {run.model, run.tokenizer, run.optimizer, run.arguments}, state,
                  {}, {});
  CHECK(std::filesystem::exists(folder / "run/model.safetensors"));
  CHECK(!std::filesystem::exists(folder / "run/optimizer.safetensors"));
}

TEST_CASE("the limit on checkpoints spares the best and the newest") {
  const auto kept = [](std::vector<double> scores, int64_t limit) {
    const TemporaryFolder folder;
    ScoredRun run(folder.path(), std::move(scores),
                  {.save_strategy = IntervalStrategy::epoch,
                   .save_total_limit = limit,
                   .load_best_model_at_end = true});
    run.trainer.train();
    return steps_in(folder.path());
  };
  CHECK(kept({0.1, 0.9, 0.2, 0.3, 0.4}, 1) == Steps{2, 5});
  CHECK(kept({0.1, 0.9, 0.2, 0.3, 0.4}, 2) == Steps{2, 5});
  CHECK(kept({0.1, 0.9, 0.2, 0.3, 0.4}, 3) == Steps{2, 4, 5});
  CHECK(kept({0.1, 0.2, 0.3, 0.4, 0.9}, 1) == Steps{5});
  CHECK(kept({0.9, 0.2, 0.3, 0.4, 0.5}, 1) == Steps{1, 5});
}

TEST_CASE("what the best model needs is checked before training") {
  const auto error = [](TrainingArguments arguments) {
    arguments.per_device_train_batch_size = 4;
    return error_of([&] { Run(arguments, 8, 4).trainer.train(); });
  };
  CHECK(error({.load_best_model_at_end = true}) ==
        "load_best_model_at_end: needs an eval_strategy other than no");
  CHECK(error({.eval_strategy = IntervalStrategy::epoch, .load_best_model_at_end = true}) ==
        "load_best_model_at_end: save_strategy must be that of evaluation, epoch, or best, is no");
  CHECK(error({.eval_strategy = IntervalStrategy::steps,
               .eval_steps = 2,
               .save_strategy = IntervalStrategy::steps,
               .save_steps = 3,
               .load_best_model_at_end = true}) ==
        "load_best_model_at_end: save_steps must be a multiple of the 2 eval_steps, is 3");
  CHECK(error({.max_steps = 10,
               .eval_strategy = IntervalStrategy::steps,
               .eval_steps = 2,
               .save_strategy = IntervalStrategy::steps,
               .save_steps = 0.25,
               .load_best_model_at_end = true}) ==
        "load_best_model_at_end: save_steps must be a multiple of the 2 eval_steps; 0.25 of 10 "
        "updates is every 3");
  CHECK(error({.metric_for_best_model = "f1"}) ==
        "metric_for_best_model: is f1, but eval_strategy is no");
  CHECK(error({.eval_strategy = IntervalStrategy::epoch, .metric_for_best_model = "f2"})
            .starts_with("metric_for_best_model: there is no \"eval_f2\"; there are eval_loss, "
                         "eval_accuracy, "));
  CHECK(error({.eval_strategy = IntervalStrategy::epoch,
               .save_strategy = IntervalStrategy::epoch,
               .load_best_model_at_end = true})
            .ends_with("which was best; add a callback that writes them, such as "
                       "CheckpointCallback"));
}

TEST_CASE("a run stops when the metric has not improved for so many evaluations") {
  CHECK(stops_at({0.5, 0.6, 0.6, 0.7, 0.8}, 1) == 3);
  CHECK(stops_at({0.5, 0.6, 0.6, 0.7, 0.8}, 2) == 5);
  CHECK(stops_at({0.5, 0.6, 0.6, 0.5, 0.8}, 2) == 4);
  CHECK(stops_at({0.5, 0.4, 0.4, 0.3, 0.2}, 1, 0, false) == 3);
  // By more than the threshold over the best so far: 0.625 is less than 0.25 above 0.5, and becomes
  // the best all the same.
  CHECK(stops_at({0.5, 0.625, 0.75, 0.9, 1.0}, 2, 0.25) == 3);
  CHECK(stops_at({0.25, 0.75, 1.25, 1.75, 2.25}, 1, 0.25) == 5);
  CHECK(stops_at({0.5, NAN, 0.6, 0.7, 0.8}, 1) == 2);
  CHECK(stops_at({NAN, 0.5, 0.6, 0.7, 0.8}, 1) == 1);
}

TEST_CASE("a run that stops early still saves its last update") {
  const TemporaryFolder folder;
  ScoredRun run(folder.path(), {0.5, 0.6, 0.5, 0.4, 0.3},
                {.save_strategy = IntervalStrategy::epoch, .load_best_model_at_end = true});
  run.trainer.add_callback(std::make_shared<EarlyStoppingCallback>(run.arguments));
  run.trainer.train();
  CHECK(steps_in(folder.path()) == Steps{1, 2, 3});
  CHECK(run.trainer.state().best_global_step == 2);
}

TEST_CASE("early stopping needs something to look at") {
  const auto error = [](const TrainingArguments& arguments, int64_t patience, double threshold) {
    return error_of([&] { EarlyStoppingCallback(arguments, patience, threshold); });
  };
  const TrainingArguments good{.eval_strategy = IntervalStrategy::epoch,
                               .metric_for_best_model = "loss"};
  CHECK(error({.metric_for_best_model = "loss"}, 1, 0) ==
        "early stopping: needs an eval_strategy other than no");
  CHECK(error({.eval_strategy = IntervalStrategy::epoch}, 1, 0) ==
        "early stopping: needs a metric_for_best_model, such as loss or accuracy");
  CHECK(error(good, 0, 0) == "early_stopping_patience: must be at least 1, is 0");
  CHECK(error(good, 1, -1) == "early_stopping_threshold: must be at least 0 and finite, is -1");
}
