#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "optim/plateau.h"
#include "optim/schedule.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;
using nlohmann::json;

TEST_CASE("linear schedule: rises for 2 steps, falls for 8, and the first update has rate 0") {
  const Schedule rate = linear_schedule({.lr = 8.0, .warmup_steps = 2, .total_steps = 10});
  const double expected[] = {0, 4, 8, 7, 6, 5, 4, 3, 2, 1, 0, 0, 0};
  for (int64_t step = 0; step < 13; ++step)
    CHECK(rate(step) == expected[step]);
}

TEST_CASE("constant schedules: at once, or after a warm-up") {
  CHECK(constant_schedule({.lr = 2.0})(1000000) == 2.0);
  const Schedule rate = constant_with_warmup_schedule({.lr = 2.0, .warmup_steps = 4});
  CHECK(rate(0) == 0.0);
  CHECK(rate(1) == 0.5);
  CHECK(rate(4) == 2.0);
  CHECK(rate(int64_t(1) << 40) == 2.0);
}

TEST_CASE("cosine schedule: half the rate at half the time") {
  const Schedule rate = cosine_schedule({.lr = 1.0, .total_steps = 100});
  CHECK(rate(0) == 1.0);
  CHECK(rate(50) == doctest::Approx(0.5));
  CHECK(rate(100) == 0.0);
}

// Every schedule of Hugging Face under every option, step by step. The arithmetic is in double and
// in the same order; 1e-15 allows for another libm's cos and pow.
TEST_CASE("schedules: equal to Hugging Face's at every step, also beyond the end") {
  const json table = json::parse(std::ifstream(MINIM_TEST_DATA "/schedules/schedules.json"));
  int compared = 0;
  for (const json& test : table["cases"]) {
    const std::string type = test["type"];
    if (type == "reduce_lr_on_plateau") continue;
    ScheduleOptions options = {.lr = table["base_lr"], .total_steps = test["total"]};
    // The library takes and ignores a warm-up for "constant"; here it must be left out.
    if (type != "constant") options.warmup_steps = test["warmup"];
    for (const auto& [key, value] : test["options"].items()) {
      if (key == "num_cycles")
        options.num_cycles = value;
      else if (key == "power")
        options.power = value;
      else if (key == "lr_end")
        options.lr_end = value;
      else if (key == "timescale")
        options.timescale = value;
      else if (key == "min_lr")
        options.min_lr = value;
      else if (key == "min_lr_rate")
        options.min_lr_rate = value;
      else if (key == "warmup_lr_rate")
        options.warmup_lr_rate = value;
      else if (key == "num_decay_steps")
        options.num_decay_steps = value;
      else if (key == "warmup_type")
        options.warmup_type = value;
      else if (key == "decay_type")
        options.decay_type = value;
      else if (key == "min_lr_ratio")
        options.min_lr_ratio = value;
      else
        FAIL("unknown option " << key);
    }
    CAPTURE(test.dump());
    const Schedule rate = make_schedule(type, options);
    if (test.contains("raises")) {
      // Polynomial decay without a step to decay in: the library divides by zero, this one ends.
      CHECK(rate(test["total"]) == doctest::Approx(options.lr_end.value_or(1e-7)).epsilon(1e-15));
      continue;
    }
    for (size_t step = 0; step < test["lr"].size(); ++step) {
      const double expected = test["lr"][step];
      CAPTURE(step);
      CHECK(std::abs(rate(int64_t(step)) - expected) <= 1e-15 * std::max(expected, 1e-3));
      ++compared;
    }
  }
  CHECK(compared > 2000);
}

TEST_CASE("reduce_lr_on_plateau: equal to Hugging Face's after every metric") {
  const json table = json::parse(std::ifstream(MINIM_TEST_DATA "/schedules/schedules.json"));
  int compared = 0;
  for (const json& test : table["cases"]) {
    if (test["type"] != "reduce_lr_on_plateau") continue;
    const json& o = test["options"];
    ReduceLrOnPlateau plateau({.lr = table["base_lr"],
                               .factor = o["factor"],
                               .patience = o["patience"],
                               .cooldown = o.value("cooldown", 0),
                               .min_lr = o.value("min_lr", 0.0)});
    const json& metrics = test["metric_per_step"];
    for (size_t step = 0; step < test["lr"].size(); ++step) {
      CHECK(plateau.lr() == doctest::Approx(double(test["lr"][step])).epsilon(1e-15));
      ++compared;
      // The library's run goes on past the list with the last metric's neighbours; stop there.
      if (step >= metrics.size()) break;
      plateau.observe(metrics[step]);
      // A resumed one goes on alike.
      ReduceLrOnPlateau resumed({.lr = table["base_lr"],
                                 .factor = o["factor"],
                                 .patience = o["patience"],
                                 .cooldown = o.value("cooldown", 0),
                                 .min_lr = o.value("min_lr", 0.0)});
      resumed.set_state(plateau.state());
      plateau = resumed;
    }
  }
  CHECK(compared == 32);
}

TEST_CASE("reduce_lr_on_plateau: a metric that should grow, and one that is NaN") {
  ReduceLrOnPlateau plateau({.lr = 1.0, .factor = 0.5, .patience = 0, .greater_is_better = true});
  plateau.observe(0.5);
  plateau.observe(0.6);
  CHECK(plateau.lr() == 1.0);
  plateau.observe(std::nan(""));
  CHECK(plateau.lr() == 0.5);
  CHECK(error_of([] { ReduceLrOnPlateau({.factor = 1.0}); }) ==
        "reduce_lr_on_plateau: factor is 1, must lie between 0 and 1");
}

TEST_CASE("schedules: what makes no sense is refused") {
  const auto error = [](std::string_view name, const ScheduleOptions& options) {
    return error_of([&] { make_schedule(name, options); });
  };
  CHECK(error("warm", {}) ==
        "schedule: there is no \"warm\"; there are constant, constant_with_warmup, linear, cosine, "
        "cosine_with_restarts, polynomial, inverse_sqrt, cosine_with_min_lr, "
        "cosine_warmup_with_min_lr, warmup_stable_decay");
  CHECK(error("reduce_lr_on_plateau", {}) ==
        "schedule: reduce_lr_on_plateau depends on a metric; use ReduceLrOnPlateau");
  CHECK(error("linear", {.lr = 1.0}) == "linear: needs total_steps");
  CHECK(error("linear", {.lr = -1.0, .total_steps = 1}) ==
        "linear: lr is -1, must be finite and not negative");
  CHECK(error("linear", {.warmup_steps = -1, .total_steps = 1}) ==
        "linear: warmup_steps is -1, must be finite and not negative");
  CHECK(error("linear", {.total_steps = 1, .power = 2.0}) == "linear: this schedule has no power");
  CHECK(error("constant", {.warmup_steps = 3}) == "constant: this schedule has no warmup_steps");
  CHECK(error("polynomial", {.lr = 1e-8, .total_steps = 9}) ==
        "polynomial: lr_end is 1e-07, must be less than lr = 1e-08");
  CHECK(error("inverse_sqrt", {.timescale = 0.0}) ==
        "inverse_sqrt: timescale is 0, must be positive");
  CHECK(error("cosine_with_min_lr", {.total_steps = 9}) ==
        "cosine_with_min_lr: needs min_lr or min_lr_rate, one of the two");
  CHECK(error("cosine_with_min_lr", {.total_steps = 9, .min_lr = 0.1, .min_lr_rate = 0.1}) ==
        "cosine_with_min_lr: needs min_lr or min_lr_rate, one of the two");
  CHECK(error("warmup_stable_decay", {.total_steps = 9}) ==
        "warmup_stable_decay: needs num_decay_steps");
  CHECK(error("warmup_stable_decay",
              {.total_steps = 9, .num_decay_steps = 3, .decay_type = "steep"}) ==
        "warmup_stable_decay: decay_type is \"steep\", must be linear, cosine or 1-sqrt");
  CHECK(error_of([] { constant_schedule({})(-1); }) ==
        "schedule: step is -1, must not be negative");
}
