#include "optim/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <utility>

#include "optim/option_checks.h"

namespace minim::optim {

namespace {

using std::numbers::pi;

// Fraction of the warm-up done before step s.
double warmup(double s, double steps) {
  return s / std::max(1.0, steps);
}

// Fraction done, before step s, of what follows the warm-up; not limited to 1.
double progress(double s, const ScheduleOptions& o) {
  return (s - double(o.warmup_steps)) /
         std::max(1.0, double(*o.total_steps) - double(o.warmup_steps));
}

double wave(double cycles, double done) {
  return 0.5 * (1.0 + std::cos(pi * cycles * 2.0 * done));
}

double min_rate(const ScheduleOptions& o) {
  return o.min_lr ? *o.min_lr / o.lr : *o.min_lr_rate;
}

// Each returns the factor on lr at step s. Their order of operations is Hugging Face's.

double constant(double, const ScheduleOptions&) {
  return 1.0;
}

double constant_with_warmup(double s, const ScheduleOptions& o) {
  return s < double(o.warmup_steps) ? warmup(s, double(o.warmup_steps)) : 1.0;
}

double linear(double s, const ScheduleOptions& o) {
  const double w = double(o.warmup_steps), total = double(*o.total_steps);
  if (s < w) return warmup(s, w);
  return std::max(0.0, (total - s) / std::max(1.0, total - w));
}

double cosine(double s, const ScheduleOptions& o) {
  if (s < double(o.warmup_steps)) return warmup(s, double(o.warmup_steps));
  return std::max(0.0, wave(o.num_cycles.value_or(0.5), progress(s, o)));
}

double cosine_with_restarts(double s, const ScheduleOptions& o) {
  if (s < double(o.warmup_steps)) return warmup(s, double(o.warmup_steps));
  const double done = progress(s, o);
  if (done >= 1.0) return 0.0;
  return std::max(0.0,
                  0.5 * (1.0 + std::cos(pi * std::fmod(o.num_cycles.value_or(1.0) * done, 1.0))));
}

double polynomial(double s, const ScheduleOptions& o) {
  const double w = double(o.warmup_steps), total = double(*o.total_steps);
  const double end = o.lr_end.value_or(1e-7);
  if (s < w) return warmup(s, w);
  // Hugging Face divides by zero at s = total = w; the end is the only sensible value there.
  if (s >= total) return end / o.lr;
  const double left = 1.0 - (s - w) / (total - w);
  return ((o.lr - end) * std::pow(left, o.power.value_or(1.0)) + end) / o.lr;
}

double inverse_sqrt(double s, const ScheduleOptions& o) {
  const double w = double(o.warmup_steps);
  if (s < w) return warmup(s, w);
  const double timescale = o.timescale.value_or(w > 0 ? w : 10000.0);
  return 1.0 / std::sqrt((s + (timescale - w)) / timescale);
}

double cosine_with_min_lr(double s, const ScheduleOptions& o) {
  if (s < double(o.warmup_steps)) return warmup(s, double(o.warmup_steps));
  const double rate = min_rate(o);
  return std::max(0.0, wave(o.num_cycles.value_or(0.5), progress(s, o)) * (1.0 - rate) + rate);
}

double cosine_warmup_with_min_lr(double s, const ScheduleOptions& o) {
  const double w = double(o.warmup_steps);
  if (s < w) {
    if (!o.warmup_lr_rate) return (s + 1.0) / std::max(1.0, w);
    return *o.warmup_lr_rate + (1.0 - *o.warmup_lr_rate) * s / std::max(1.0, w - 1.0);
  }
  const double rate = min_rate(o);
  return std::max(0.0,
                  wave(o.num_cycles.value_or(0.5), progress(s + 1.0, o)) * (1.0 - rate) + rate);
}

double warmup_stable_decay(double s, const ScheduleOptions& o) {
  const double w = double(o.warmup_steps), decay = double(*o.num_decay_steps);
  const double stable =
      o.num_stable_steps ? double(*o.num_stable_steps) : double(*o.total_steps) - w - decay;
  const double least = o.min_lr_ratio.value_or(0.0);
  if (s < w) {
    const double done = warmup(s, w);
    const std::string type = o.warmup_type.value_or("linear");
    const double factor = type == "linear"   ? done
                          : type == "cosine" ? 0.5 * (1.0 - std::cos(pi * done))
                                             : 1.0 - std::sqrt(1.0 - done);
    return std::max(0.0, factor * (1.0 - least) + least);
  }
  if (s < w + stable) return 1.0;
  if (s < w + stable + decay) {
    const double done = (s - w - stable) / std::max(1.0, decay);
    const std::string type = o.decay_type.value_or("cosine");
    const double factor = type == "linear"   ? 1.0 - done
                          : type == "cosine" ? wave(o.num_cycles.value_or(0.5), done)
                                             : 1.0 - std::sqrt(done);
    return std::max(0.0, factor * (1.0 - least) + least);
  }
  return least;
}

// What there is of each: its factor, and the options that it reads beside lr.
struct Kind {
  std::string_view name;
  double (*factor)(double, const ScheduleOptions&);
  std::string_view options;
};
constexpr Kind kinds[] = {
    {"constant", constant, ""},
    {"constant_with_warmup", constant_with_warmup, " warmup_steps "},
    {"linear", linear, " warmup_steps "},
    {"cosine", cosine, " warmup_steps num_cycles "},
    {"cosine_with_restarts", cosine_with_restarts, " warmup_steps num_cycles "},
    {"polynomial", polynomial, " warmup_steps power lr_end "},
    {"inverse_sqrt", inverse_sqrt, " warmup_steps timescale "},
    {"cosine_with_min_lr", cosine_with_min_lr, " warmup_steps num_cycles min_lr min_lr_rate "},
    {"cosine_warmup_with_min_lr", cosine_warmup_with_min_lr,
     " warmup_steps num_cycles min_lr min_lr_rate warmup_lr_rate "},
    {"warmup_stable_decay", warmup_stable_decay,
     " warmup_steps num_cycles num_decay_steps num_stable_steps warmup_type decay_type "
     "min_lr_ratio "},
};

constexpr auto names = [] {
  std::array<std::string_view, std::size(kinds)> all;
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = kinds[i].name;
  return all;
}();

void validate(const Kind& kind, const ScheduleOptions& o) {
  const auto offer = [&](std::string_view key, bool given) {
    check(!given || kind.options.find(fmt::format(" {} ", key)) != std::string_view::npos,
          "{}: this schedule has no {}", kind.name, key);
  };
  const auto positive = [&](std::string_view key, const auto& value) {
    offer(key, value.has_value());
    if (value) check_not_negative(kind.name, key, double(*value));
  };
  const auto shape = [&](std::string_view key, const std::optional<std::string>& value) {
    offer(key, value.has_value());
    check(!value || *value == "linear" || *value == "cosine" || *value == "1-sqrt",
          "{}: {} is \"{}\", must be linear, cosine or 1-sqrt", kind.name, key, value.value_or(""));
  };
  check_not_negative(kind.name, "lr", o.lr);
  check_not_negative(kind.name, "warmup_steps", double(o.warmup_steps));
  if (o.total_steps) check_not_negative(kind.name, "total_steps", double(*o.total_steps));
  check(o.total_steps || kind.factor == constant || kind.factor == constant_with_warmup ||
            kind.factor == inverse_sqrt,
        "{}: needs total_steps", kind.name);
  offer("warmup_steps", o.warmup_steps > 0);
  positive("num_cycles", o.num_cycles);
  positive("power", o.power);
  positive("lr_end", o.lr_end);
  positive("timescale", o.timescale);
  positive("min_lr", o.min_lr);
  positive("min_lr_rate", o.min_lr_rate);
  positive("warmup_lr_rate", o.warmup_lr_rate);
  positive("num_decay_steps", o.num_decay_steps);
  positive("num_stable_steps", o.num_stable_steps);
  positive("min_lr_ratio", o.min_lr_ratio);
  shape("warmup_type", o.warmup_type);
  shape("decay_type", o.decay_type);
  if (kind.factor == polynomial)
    check(o.lr > o.lr_end.value_or(1e-7), "{}: lr_end is {}, must be less than lr = {}", kind.name,
          o.lr_end.value_or(1e-7), o.lr);
  if (kind.factor == inverse_sqrt)
    check(o.timescale.value_or(1.0) > 0, "{}: timescale is 0, must be positive", kind.name);
  if (kind.factor == cosine_with_min_lr || kind.factor == cosine_warmup_with_min_lr) {
    check(o.min_lr.has_value() != o.min_lr_rate.has_value(),
          "{}: needs min_lr or min_lr_rate, one of the two", kind.name);
    check(!o.min_lr || o.lr > 0, "{}: lr is 0, must be positive beside min_lr", kind.name);
  }
  if (kind.factor == warmup_stable_decay)
    check(o.num_decay_steps.has_value(), "{}: needs num_decay_steps", kind.name);
}

}  // namespace

std::span<const std::string_view> schedule_names() {
  return names;
}

Schedule make_schedule(std::string_view name, const ScheduleOptions& options) {
  const auto kind = std::ranges::find(kinds, name, &Kind::name);
  check(name != "reduce_lr_on_plateau",
        "schedule: reduce_lr_on_plateau depends on a metric; use ReduceLrOnPlateau");
  if (kind == std::end(kinds)) {
    std::string known;
    for (const std::string_view other : names)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", other);
    fail("schedule: there is no \"{}\"; there are {}", name, known);
  }
  validate(*kind, options);
  return [options, factor = kind->factor](int64_t step) {
    check(step >= 0, "schedule: step is {}, must not be negative", step);
    return options.lr * factor(double(step), options);
  };
}

Schedule constant_schedule(const ScheduleOptions& options) {
  return make_schedule("constant", options);
}

Schedule constant_with_warmup_schedule(const ScheduleOptions& options) {
  return make_schedule("constant_with_warmup", options);
}

Schedule linear_schedule(const ScheduleOptions& options) {
  return make_schedule("linear", options);
}

Schedule cosine_schedule(const ScheduleOptions& options) {
  return make_schedule("cosine", options);
}

}  // namespace minim::optim
