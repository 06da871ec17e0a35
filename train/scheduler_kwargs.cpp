#include "train/scheduler_kwargs.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/printable.h"

namespace minim::train {

namespace {

using nlohmann::json;
using optim::ScheduleOptions;

struct Field {
  const char* name;
  std::variant<std::optional<double> ScheduleOptions::*, std::optional<int64_t> ScheduleOptions::*,
               std::optional<std::string> ScheduleOptions::*>
      place;
};
constexpr Field fields[] = {
    {"num_cycles", &ScheduleOptions::num_cycles},
    {"power", &ScheduleOptions::power},
    {"lr_end", &ScheduleOptions::lr_end},
    {"timescale", &ScheduleOptions::timescale},
    {"min_lr", &ScheduleOptions::min_lr},
    {"min_lr_rate", &ScheduleOptions::min_lr_rate},
    {"warmup_lr_rate", &ScheduleOptions::warmup_lr_rate},
    {"num_decay_steps", &ScheduleOptions::num_decay_steps},
    {"num_stable_steps", &ScheduleOptions::num_stable_steps},
    {"warmup_type", &ScheduleOptions::warmup_type},
    {"decay_type", &ScheduleOptions::decay_type},
    {"min_lr_ratio", &ScheduleOptions::min_lr_ratio},
};

const Field& field_of(const std::string& name) {
  std::string known;
  for (const Field& field : fields) {
    if (name == field.name) return field;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", field.name);
  }
  fail("lr_scheduler_kwargs: there is no {}; there are {}", printable(name), known);
}

void set(ScheduleOptions& options, const std::string& name, const json& value) {
  const Field& field = field_of(name);
  const bool is_count =
      std::holds_alternative<std::optional<int64_t> ScheduleOptions::*>(field.place);
  const bool is_text =
      std::holds_alternative<std::optional<std::string> ScheduleOptions::*>(field.place);
  const char* const wanted = is_text ? "a word" : is_count ? "a whole number" : "a number";
  const bool is_whole = value.is_number() && std::abs(value.get<double>()) < 0x1p53 &&
                        value.get<double>() == std::floor(value.get<double>());
  check(is_text    ? value.is_string()
        : is_count ? is_whole
                   : value.is_number(),
        "lr_scheduler_kwargs: {} must be {}, is {}", name, wanted, value.dump());
  std::visit(
      [&]<class T>(std::optional<T> ScheduleOptions::*place) {
        if constexpr (std::is_same_v<T, int64_t>)
          options.*place = int64_t(value.get<double>());
        else
          options.*place = value.get<T>();
      },
      field.place);
}

}  // namespace

void read_scheduler_kwargs(std::string_view text, ScheduleOptions& options) {
  if (text.starts_with("{")) {
    const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
    check(object.is_object(), "lr_scheduler_kwargs: {} is not a JSON object", printable(text));
    for (const auto& [name, value] : object.items())
      set(options, name, value);
    return;
  }
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find(','));
    text.remove_prefix(std::min(pair.size() + 1, text.size()));
    const size_t equals = pair.find('=');
    check(equals != std::string_view::npos, "lr_scheduler_kwargs: {} has no value; write key=value",
          printable(pair));
    const std::string_view written = pair.substr(equals + 1);
    json value = json::parse(written, nullptr, /*allow_exceptions=*/false);
    if (!value.is_number()) value = std::string(written);  // a word
    set(options, std::string(pair.substr(0, equals)), value);
  }
}

}  // namespace minim::train
