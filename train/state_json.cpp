#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "train/state_report.h"
#include "train/state_view.h"

namespace minim::train {

namespace {

using nlohmann::json;
using optim::SavedState;

constexpr size_t first_values = 8;

// JSON has neither NaN nor infinities.
json number(double value) {
  return std::isfinite(value) ? json(value) : json(nullptr);
}

json shape_json(const Shape& shape) {
  return std::vector<int64_t>(shape.begin(), shape.end());
}

json codes_json(const CodesView& codes) {
  return {{"block_size", codes.block},
          {"blocks", codes.blocks},
          {"codes_used", codes.used},
          {"commonest_code_value", codes.commonest_value},
          {"commonest_code_share", codes.commonest_share},
          {"absmax",
           {{"min", number(codes.least_scale)},
            {"median", number(codes.median_scale)},
            {"max", number(codes.largest_scale)}}},
          {"error_bound", {{"max", codes.error.largest()}, {"rms", codes.error.rms}}}};
}

json view_json(const TensorView& view) {
  const optim::Summary& s = view.summary;
  json object = {{"key", view.key},
                 {"dtype", name_of(view.dtype)},
                 {"shape", shape_json(view.values.shape())},
                 {"elements", s.elements},
                 {"bytes", view.bytes},
                 {"stored", view.is_stored},
                 {"min", s.min},
                 {"mean", s.mean},
                 {"max", s.max},
                 {"rms", s.rms},
                 {"zeros", s.zeros},
                 {"not_finite", s.not_finite},
                 {"histogram",
                  {{"logarithmic", view.histogram.logarithmic},
                   {"low", view.histogram.low},
                   {"high", view.histogram.high},
                   {"counts", view.histogram.counts}}}};
  json first = json::array();
  std::vector<double> values = view.values.to_vector<double>();
  values.resize(std::min(values.size(), first_values));
  for (const double value : values)
    first.push_back(number(value));
  object["first_values"] = first;
  if (view.codes) object["codes"] = codes_json(*view.codes);
  return object;
}

json parameter_json(const SavedState::Parameter& parameter) {
  json tensors = json::array(), numbers = json::object();
  for (const optim::StateSize::Entry& tensor : parameter.tensors)
    tensors.push_back({{"key", tensor.key},
                       {"dtype", name_of(tensor.dtype)},
                       {"shape", shape_json(tensor.shape)},
                       {"elements", tensor.elements},
                       {"bytes", tensor.bytes}});
  for (const auto& [key, value] : parameter.numbers)
    numbers[key] = number(value);
  return {{"name", parameter.name},
          {"group", parameter.group},
          {"shape", parameter.shape ? shape_json(*parameter.shape) : json(nullptr)},
          {"numbers", numbers},
          {"tensors", tensors}};
}

}  // namespace

std::string state_json(const SavedState& state,
                       std::span<const SavedState::Parameter* const> detailed) {
  json groups = json::array(), parameters = json::array();
  for (const SavedState::Group& group : state.groups()) {
    json options = json::object();
    for (const auto& [key, value] : group.options)
      options[key] = value;
    groups.push_back({{"options", options}, {"parameters", group.parameters}});
  }
  if (detailed.empty())
    for (const SavedState::Parameter& parameter : state.parameters())
      parameters.push_back(parameter_json(parameter));
  for (const SavedState::Parameter* parameter : detailed) {
    json object = parameter_json(*parameter);
    json views = json::array();
    for (const TensorView& view : view_state(state, *parameter))
      views.push_back(view_json(view));
    object["tensors"] = views;
    parameters.push_back(object);
  }
  const json object = {{"path", state.path()},
                       {"optimizer", state.optimizer()},
                       {"groups", groups},
                       {"parameters", parameters},
                       {"elements", state.size().elements},
                       {"numbers", state.size().numbers},
                       {"bytes", state.size().bytes}};
  return object.dump(2, ' ', false, json::error_handler_t::replace);
}

}  // namespace minim::train
