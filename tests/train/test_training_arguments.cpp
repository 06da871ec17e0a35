#include <cmath>

#include <doctest/doctest.h>

#include "tests/core/temporary_folder.h"
#include "train/training_arguments.h"

using namespace minim;
using namespace minim::test;
using train::TrainingArguments;

TEST_CASE("training arguments have Hugging Face's defaults") {
  const TrainingArguments a;
  a.validate();
  CHECK(a.per_device_train_batch_size == 8);
  CHECK(a.num_train_epochs == 3.0);
  CHECK(a.learning_rate == 5e-5);
  CHECK(a.lr_scheduler_type == "linear");
  CHECK(a.max_grad_norm == 1.0);
  CHECK(a.seed == 42);
  CHECK(a.logging_steps == 500);
  CHECK(a.adam_epsilon == 1e-8);
  CHECK(a.weight_decay == 0);
  CHECK(a.save_steps == 500);
}

TEST_CASE("values that make no sense are refused by name") {
  const auto error = [](const TrainingArguments& a) { return error_of([&] { a.validate(); }); };
  CHECK(error({.per_device_train_batch_size = 0}) ==
        "per_device_train_batch_size: must be at least 1, is 0");
  CHECK(error({.per_device_eval_batch_size = -8}) ==
        "per_device_eval_batch_size: must be at least 1, is -8");
  CHECK(error({.gradient_accumulation_steps = 0}) ==
        "gradient_accumulation_steps: must be at least 1, is 0");
  const std::string ratio = ": must be a whole number of updates or a ratio between 0 and 1, is ";
  CHECK(error({.logging_steps = 0}) == "logging_steps" + ratio + "0");
  CHECK(error({.logging_steps = 2.5}) == "logging_steps" + ratio + "2.5");
  CHECK(error({.eval_steps = 0}) == "eval_steps" + ratio + "0");
  CHECK(error({.eval_steps = -0.5}) == "eval_steps" + ratio + "-0.5");
  CHECK(error({.label_smoothing_factor = 1.5}) ==
        "label_smoothing_factor: must lie between 0 and 1, is 1.5");
  CHECK(error({.neftune_noise_alpha = -5}) == "neftune_noise_alpha: must be at least 0, is -5");
  CHECK(error({.non_finite_patience = -1}) == "non_finite_patience: must be at least 0, is -1");
  CHECK(error({.lr_scheduler_kwargs = "num_cycles"}) ==
        "lr_scheduler_kwargs: \"num_cycles\" has no value; write key=value");
  CHECK(error({.lr_scheduler_kwargs = "cycles=2"})
            .starts_with("lr_scheduler_kwargs: there is no \"cycles\"; there are num_cycles, "));
  CHECK(error({.lr_scheduler_kwargs = "num_cycles=two"}) ==
        "lr_scheduler_kwargs: num_cycles must be a number, is \"two\"");
  CHECK(error({.lr_scheduler_kwargs = "num_decay_steps=2.5"}) ==
        "lr_scheduler_kwargs: num_decay_steps must be a whole number, is 2.5");
  CHECK(error({.lr_scheduler_kwargs = "{2}"}) ==
        "lr_scheduler_kwargs: \"{2}\" is not a JSON object");
  CHECK(error({.learning_rate = -1e-3}) == "learning_rate: must be at least 0, is -0.001");
  CHECK(error({.learning_rate = NAN}) == "learning_rate: must be at least 0, is nan");
  CHECK(error({.warmup_steps = -1}) == "warmup_steps: must be at least 0, is -1");
  CHECK(error({.warmup_ratio = 1.5}) == "warmup_ratio: must lie between 0 and 1, is 1.5");
  CHECK(error({.max_grad_norm = -1}) == "max_grad_norm: must be at least 0, is -1");
  CHECK(error({.num_train_epochs = 0}) ==
        "num_train_epochs: must be above 0 unless max_steps is, is 0");
  CHECK(error({.num_train_epochs = 0, .max_steps = 1}).empty());
  const std::string steps =
      "save_steps: must be a whole number of updates or a ratio between 0 and ";
  CHECK(error({.save_steps = 0}) == steps + "1, is 0");
  CHECK(error({.save_steps = 1.5}) == steps + "1, is 1.5");
  CHECK(error({.save_steps = NAN}) == steps + "1, is nan");
  CHECK(error({.save_steps = INFINITY}) == steps + "1, is inf");
  CHECK(error({.save_steps = 0.5}).empty());
  CHECK(error({.save_total_limit = -1}) == "save_total_limit: must be at least 0, is -1");
  CHECK(
      error_of([] { train::parse_interval_strategy("epochs"); }) ==
      "strategy: there is no \"epochs\"; there are no, steps, epoch and, for save_strategy, best");
  CHECK(error({.eval_delay = -1}) == "eval_delay: must be at least 0, is -1");
  using train::IntervalStrategy;
  CHECK(error({.logging_strategy = IntervalStrategy::best}) ==
        "logging_strategy: must be no, steps or epoch, is best");
  CHECK(error({.eval_strategy = IntervalStrategy::best}) ==
        "eval_strategy: must be no, steps or epoch, is best");
  CHECK(error({.save_strategy = IntervalStrategy::best}) ==
        "save_strategy: is best, which needs an eval_strategy other than no");
  // The checkpoint of the best is there whenever it is to be loaded.
  CHECK(error({.eval_strategy = IntervalStrategy::steps,
               .eval_steps = 3,
               .save_strategy = IntervalStrategy::best,
               .load_best_model_at_end = true})
            .empty());
  // Infinities would run for ever or spoil every weight.
  CHECK(error({.num_train_epochs = INFINITY}) == "num_train_epochs: must be finite, is inf");
  CHECK(error({.learning_rate = INFINITY}) == "learning_rate: must be finite, is inf");
}

TEST_CASE("lr_scheduler_kwargs are the schedule's other options, written in either way") {
  for (const char* kwargs : {"num_cycles=2,min_lr=1e-6", "{\"num_cycles\": 2, \"min_lr\": 1e-6}"}) {
    const optim::ScheduleOptions options =
        TrainingArguments{.lr_scheduler_type = "cosine_with_min_lr", .lr_scheduler_kwargs = kwargs}
            .schedule_options(100);
    CHECK(options.num_cycles == 2);
    CHECK(options.min_lr == 1e-6);
    CHECK(options.total_steps == 100);
  }
  const optim::ScheduleOptions wsd =
      TrainingArguments{.lr_scheduler_type = "warmup_stable_decay",
                        .lr_scheduler_kwargs = "num_decay_steps=20,decay_type=1-sqrt"}
          .schedule_options(100);
  CHECK(wsd.num_decay_steps == 20);
  CHECK(wsd.decay_type == "1-sqrt");
  // What a schedule does not have is refused by the schedule.
  CHECK(error_of([] {
          optim::make_schedule("constant", TrainingArguments{.lr_scheduler_type = "constant",
                                                             .lr_scheduler_kwargs = "power=2"}
                                               .schedule_options(100));
        }).starts_with("constant: "));
}
