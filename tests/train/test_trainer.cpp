#include <cmath>

#include "tests/train/small_model.h"

// What a Trainer does when: steps, rates, logs and evaluations.
using namespace minim;
using namespace minim::test;

TEST_CASE("the number of updates follows rows, batch size, accumulation and epochs") {
  struct Case {
    int64_t rows, batch, accumulation;
    double epochs;
    int64_t max_steps, expected;
  };
  // ceil(ceil(rows / batch) / accumulation) updates an epoch, at least 1; ceil(epochs * updates).
  const Case cases[] = {
      {20, 4, 1, 3, -1, 15},   // 5 batches
      {21, 4, 1, 3, -1, 18},   // the sixth batch has one row
      {21, 4, 4, 3, -1, 6},    // 4 + 2 batches
      {3, 8, 4, 2, -1, 2},     // one batch, shorter than both
      {20, 4, 1, 0.5, -1, 3},  // 2.5 updates
      {20, 4, 2, 1.5, -1, 5},  // 4.5 updates
      {20, 4, 1, 3, 7, 7},     // max_steps ends in the second epoch
      {20, 4, 1, 1, 12, 12},   // and wins over fewer epochs
  };
  for (const Case& c : cases) {
    CAPTURE(c.rows);
    CAPTURE(c.accumulation);
    CAPTURE(c.epochs);
    Run run({.per_device_train_batch_size = c.batch,
             .num_train_epochs = c.epochs,
             .max_steps = c.max_steps,
             .gradient_accumulation_steps = c.accumulation},
            c.rows);
    CHECK(run.trainer.state().max_steps == c.expected);
    run.trainer.train();
    CHECK(run.trainer.state().global_step == c.expected);
    CHECK(run.recorder->steps.size() == size_t(c.expected));
  }
}

TEST_CASE("epochs advance by the fraction of batches that an update took") {
  Run run(
      {.per_device_train_batch_size = 4, .num_train_epochs = 2, .gradient_accumulation_steps = 2},
      20);
  run.trainer.train();
  std::vector<double> epochs;
  for (const TrainerState& state : run.recorder->steps)
    epochs.push_back(state.epoch);
  // Five batches: 2, 2 and the one that is left.
  CHECK(epochs == std::vector<double>{0.4, 0.8, 1.0, 1.4, 1.8, 2.0});
  CHECK(run.trainer.state().num_train_epochs == 2);
}

TEST_CASE("every token of an epoch is counted once") {
  text::Examples set = small_set(20);
  int64_t tokens = 0;
  for (int64_t length : set.lengths())
    tokens += length;
  Run run({.per_device_train_batch_size = 3, .num_train_epochs = 2}, set);
  run.trainer.train();
  CHECK(run.trainer.state().tokens == 2 * tokens);
}

TEST_CASE("linear warm-up starts at a rate of 0 and ends one step short of 0") {
  Run run({.per_device_train_batch_size = 4,
           .num_train_epochs = 2,
           .learning_rate = 0.6,
           .warmup_steps = 4},
          20);
  const std::vector<float> before = run.weights();
  struct AfterFirst : train::TrainerCallback {
    explicit AfterFirst(const Run& r) : run(r) {}
    void on_step_end(const TrainerState& state) override {
      if (state.global_step == 1) weights = run.weights();
    }
    const Run& run;
    std::vector<float> weights;
  };
  const auto after_first = std::make_shared<AfterFirst>(run);
  run.trainer.add_callback(after_first);
  run.trainer.train();
  std::vector<double> rates;
  for (const TrainerState& state : run.recorder->steps)
    rates.push_back(state.learning_rate);
  // 0.6 * step / 4, then 0.6 * (10 - step) / 6, steps counted from 0.
  const std::vector<double> expected = {0, 0.15, 0.3, 0.45, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1};
  REQUIRE(rates.size() == expected.size());
  for (size_t i = 0; i < rates.size(); ++i)
    CHECK(rates[i] == doctest::Approx(expected[i]).epsilon(1e-14));
  CHECK(after_first->weights == before);
}

TEST_CASE("warm-up may be a ratio of all steps") {
  const auto rates = [](TrainingArguments arguments) {
    arguments.per_device_train_batch_size = 4;
    arguments.num_train_epochs = 2;  // ten updates
    arguments.learning_rate = 1e-3;
    Run run(arguments, 20);
    run.trainer.train();
    std::vector<double> all;
    for (const TrainerState& state : run.recorder->steps)
      all.push_back(state.learning_rate);
    return all;
  };
  const auto three = rates({.warmup_steps = 3});
  CHECK(rates({.warmup_ratio = 0.25}) == three);  // 2.5, rounded up
  CHECK(rates({.warmup_steps = 0.25}) == three);
  CHECK(rates({.lr_scheduler_type = "constant", .warmup_steps = 3}) ==
        std::vector<double>(10, 1e-3));
}

TEST_CASE("a log entry holds the mean loss since the last one, and the rate that was used") {
  Run run({.per_device_train_batch_size = 4, .num_train_epochs = 2, .logging_steps = 4}, 20);
  const Metrics result = run.trainer.train();
  const auto& steps = run.recorder->steps;
  const auto& logs = run.recorder->logs;
  const auto mean = [&](size_t begin, size_t end) {
    double total = 0;
    for (size_t i = begin; i < end; ++i)
      total += steps[i].loss;
    return doctest::Approx(total / double(end - begin)).epsilon(1e-12);
  };
  REQUIRE(logs.size() == 3);  // after 4, 8 and, at the end, 10 steps
  CHECK(names_of(logs[0]) ==
        std::vector<std::string>{"loss", "grad_norm", "learning_rate", "epoch"});
  CHECK(value_of(logs[0], "loss") == mean(0, 4));
  CHECK(value_of(logs[1], "loss") == mean(4, 8));
  CHECK(value_of(logs[2], "loss") == mean(8, 10));
  CHECK(value_of(logs[1], "learning_rate") == steps[7].learning_rate);
  CHECK(value_of(logs[1], "grad_norm") == steps[7].grad_norm);
  CHECK(value_of(logs[1], "epoch") == 1.6);
  CHECK(value_of(result, "train_loss") == mean(0, 10));
  CHECK(names_of(result) == std::vector<std::string>{"train_runtime", "train_samples_per_second",
                                                     "train_steps_per_second", "total_flos",
                                                     "train_loss", "epoch"});
  // The history is what the callbacks saw, each entry with its step.
  const auto& history = run.trainer.state().log_history;
  REQUIRE(history.size() == 4);
  CHECK(value_of(history[0], "step") == 4);
  CHECK(value_of(history[2], "step") == 10);
  CHECK(value_of(history[3], "train_loss") == value_of(result, "train_loss"));
}

TEST_CASE("an update logs, then evaluates; the last one always logs") {
  Run run({.per_device_train_batch_size = 4,
           .num_train_epochs = 2,
           .eval_strategy = IntervalStrategy::epoch,
           .logging_steps = 2},
          12, 4);  // three updates an epoch
  run.trainer.train();
  CHECK(run.recorder->events == "[sslseslssle]");
}

TEST_CASE("evaluation comes each epoch, at the end of a run that stops within one, or by steps") {
  const auto evaluated_at = [](TrainingArguments arguments) {
    arguments.per_device_train_batch_size = 4;
    arguments.logging_steps = 2;
    Run run(arguments, 20, 6);  // five updates an epoch
    run.trainer.train();
    return run.recorder->evaluated_at;
  };
  using Steps = std::vector<int64_t>;
  CHECK(evaluated_at({.num_train_epochs = 2, .eval_strategy = IntervalStrategy::no}).empty());
  CHECK(evaluated_at({.num_train_epochs = 2, .eval_strategy = IntervalStrategy::epoch}) ==
        Steps{5, 10});
  CHECK(evaluated_at({.max_steps = 7, .eval_strategy = IntervalStrategy::epoch}) == Steps{5, 7});
  CHECK(evaluated_at({.num_train_epochs = 1, .eval_strategy = IntervalStrategy::steps}) ==
        Steps{2, 4});  // as often as logs
  CHECK(evaluated_at(
            {.num_train_epochs = 2, .eval_strategy = IntervalStrategy::steps, .eval_steps = 3}) ==
        Steps{3, 6, 9});
}

TEST_CASE("the model learns what the rows hold, and evaluation sees it") {
  Run run({.per_device_train_batch_size = 8,
           .num_train_epochs = 20,
           .learning_rate = 1e-2,
           .eval_strategy = IntervalStrategy::epoch},
          32, 16);
  run.trainer.train();
  CHECK(value_of(run.recorder->evaluations.back(), "eval_accuracy") == 1.0);
  CHECK(value_of(run.recorder->evaluations.back(), "eval_loss") < 0.1);
}

TEST_CASE("a training set is not empty, has labels, and evaluation needs data") {
  const auto error = [](const TrainingArguments& arguments, text::Examples set,
                        text::Examples eval_set) {
    return error_of([&] { Run(arguments, set, eval_set).trainer.train(); });
  };
  text::Examples unlabelled = small_set(4);
  unlabelled.labels = Tensor();
  CHECK(error({}, {}, {}) == "trainer: the training set is empty");
  CHECK(error({}, unlabelled, {}) == "trainer: the training set has no labels");
  CHECK(error({.eval_strategy = IntervalStrategy::epoch}, small_set(4), {}) ==
        "eval_strategy: needs evaluation data; there is none");
  CHECK(error({.eval_strategy = IntervalStrategy::epoch}, small_set(4), unlabelled) ==
        "evaluate: the data has no labels");
  CHECK(error({.lr_scheduler_type = "linaer"}, small_set(4), {})
            .starts_with("schedule: there is no \"linaer\"; there are constant, "));
}
