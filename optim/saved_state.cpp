#include "optim/saved_state.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fnmatch.h>
#include <unordered_map>

#include "core/printable.h"
#include "core/safetensors.h"
#include "optim/adam8bit.h"
#include "optim/similar_names.h"

namespace minim::optim {

namespace {

// Accumulators that may be scalars; all other scalars of a state are numbers beside the tensors.
constexpr std::array accumulators = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer",
                                     "variance"};

const std::string& entry(const Checkpoint& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  check(found != file.metadata().end(),
        "{}: the metadata has no \"{}\"; the file was not written by an optimizer", file.source(),
        key);
  return found->second;
}

bool is_number(std::string_view key, DType dtype, const Shape& shape) {
  return shape.rank() == 0 && (dtype == DType::i64 || dtype == DType::f64) &&
         std::ranges::find(accumulators, key) == accumulators.end();
}

// For sorting keys: rows come before columns.
std::string order_of(std::string key) {
  for (const auto& [part, place] : {std::pair("row", "1"), std::pair("col", "2")})
    if (const size_t at = key.find(part); at != std::string::npos) key.replace(at, 3, place);
  return key;
}

// The shape of the parameter that has this state.
std::optional<Shape> shape_from(const SavedState::Parameter& parameter) {
  const auto shape_of = [&](std::string_view key) -> std::optional<Shape> {
    for (const StateSize::Entry& tensor : parameter.tensors)
      if (tensor.key == key) return tensor.shape;
    return std::nullopt;
  };
  for (const char* key : accumulators)
    if (const auto shape = shape_of(key)) return shape;
  const auto row = shape_of("exp_avg_sq_row"), column = shape_of("exp_avg_sq_col");
  const auto row_var = shape_of("row_var"), column_var = shape_of("col_var");
  std::optional<Shape> shape;
  if (row && column && column->rank() > 0) {
    shape = row;
    shape->push_back(column->back());
  } else if (row_var && column_var && row_var->rank() > 0 && column_var->rank() > 0) {
    shape = row_var;
    shape->back() = column_var->back();
  }
  return shape;
}

}  // namespace

SavedState::SavedState(const std::string& path) : file_(read_safetensors(path)) {
  optimizer_ = entry(file_, "optimizer");
  const std::string& version = entry(file_, "version");
  check(version == "1", "{}: the state has version {}, must be 1", path, printable(version));
  read_groups();
  read_tensors();
}

void SavedState::read_groups() {
  const std::string& text = entry(file_, "groups");
  size_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  check(
      error == std::errc() && end == text.data() + text.size() && count <= file_.metadata().size(),
      "{}: the metadata has groups = {}, which its other entries do not bear out", path(),
      printable(text));
  for (size_t g = 0; g < count; ++g) {
    const std::string prefix = fmt::format("group.{}.", g);
    Group& group = groups_.emplace_back();
    for (std::string_view names = entry(file_, prefix + "parameters"); !names.empty();) {
      const size_t cut = std::min(names.find('\n'), names.size());
      group.parameters.emplace_back(names.substr(0, cut));
      parameters_.push_back({.name = group.parameters.back(), .group = g});
      names.remove_prefix(std::min(cut + 1, names.size()));
    }
    for (const auto& [key, value] : file_.metadata())
      if (key.starts_with(prefix) && key != prefix + "parameters")
        group.options.emplace_back(key.substr(prefix.size()), value);
  }
}

void SavedState::read_tensors() {
  std::unordered_map<std::string_view, Parameter*> by_name;
  for (Parameter& parameter : parameters_)
    check(by_name.emplace(parameter.name, &parameter).second,
          "{}: the metadata lists parameter {} twice", path(), printable(parameter.name));
  for (const StoredTensor& stored : file_.tensors()) {
    const std::string_view name = stored.name;
    const size_t dot = std::min(name.rfind('.'), name.size());
    const auto found = by_name.find(name.substr(0, dot));
    check(found != by_name.end() && dot < name.size(),
          "{}: has {}, which is the state of none of the parameters that it lists", path(),
          printable(name));
    Parameter& parameter = *found->second;
    const std::string key(name.substr(dot + 1));
    const Tensor tensor = file_.tensor(name);
    if (is_number(key, tensor.dtype(), tensor.shape())) {
      parameter.numbers.emplace_back(key, tensor.item());
      ++size_.numbers;
      continue;
    }
    parameter.tensors.push_back(
        {parameter.name, key, tensor.shape(), tensor.dtype(), tensor.numel(), tensor.bytes()});
  }
  for (Parameter& parameter : parameters_) {
    std::ranges::sort(parameter.tensors, {},
                      [](const StateSize::Entry& tensor) { return order_of(tensor.key); });
    std::ranges::sort(parameter.numbers);
    parameter.shape = shape_from(parameter);
    size_.entries.insert(size_.entries.end(), parameter.tensors.begin(), parameter.tensors.end());
  }
  if (keeps_codes() && !size_.entries.empty())
    for (const char* key : {"exp_avg_values", "exp_avg_sq_values"})
      size_.entries.push_back({"", key, {256}, DType::f32, 256, 1024});
  for (const StateSize::Entry& tensor : size_.entries) {
    size_.elements += tensor.elements;
    size_.bytes += tensor.bytes;
  }
}

std::string_view SavedState::option(const Parameter& parameter, std::string_view key) const {
  for (const auto& [name, value] : groups_[parameter.group].options)
    if (name == key) return value;
  return "";
}

auto SavedState::find(std::string_view name) const -> std::vector<const Parameter*> {
  const std::string pattern(name);
  std::vector<const Parameter*> matches, endings;
  std::vector<std::string_view> names;
  for (const Parameter& parameter : parameters_) {
    if (parameter.name == name) return {&parameter};
    if (::fnmatch(pattern.c_str(), parameter.name.c_str(), 0) == 0) matches.push_back(&parameter);
    if (parameter.name.ends_with(name)) endings.push_back(&parameter);
    names.push_back(parameter.name);
  }
  if (matches.empty()) matches = endings;
  if (matches.empty() || name.empty())
    fail("{}: none of the {} parameters is named {}{}", path(), names.size(), name,
         similar_names(name, names));
  return matches;
}

Tensor SavedState::tensor(const Parameter& parameter, std::string_view key) const {
  return file_.tensor(fmt::format("{}.{}", parameter.name, key));
}

bool SavedState::keeps_codes() const {
  return optimizer_ == Adam8bitRule::name || optimizer_ == AdamW8bitRule::name;
}

bool SavedState::is_quantized(const Parameter& parameter, std::string_view key) const {
  return keeps_codes() &&
         std::ranges::any_of(parameter.tensors, [&](const StateSize::Entry& tensor) {
           return tensor.key == fmt::format("{}_absmax", key);
         });
}

Quantized SavedState::quantized(const Parameter& parameter, std::string_view key) const {
  const std::string_view text = option(parameter, "block_size");
  int64_t block = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), block);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  Quantized codes{tensor(parameter, key), tensor(parameter, fmt::format("{}_absmax", key)), block};
  check(whole && block > 0 && codes.codes.dtype() == DType::u8 &&
            codes.absmax.dtype() == DType::f32 &&
            codes.absmax.shape() == Shape{blocks_of(codes.codes.numel(), block)},
        "{}: {}.{} is {} {} with scales {} {}, which do not fit blocks of {}", path(),
        parameter.name, key, name_of(codes.codes.dtype()), codes.codes.shape(),
        name_of(codes.absmax.dtype()), codes.absmax.shape(), printable(text));
  return codes;
}

const CodeMap& SavedState::code_map_of(const Parameter& parameter, std::string_view key) const {
  try {
    const MomentMaps maps =
        moment_maps(option(parameter, "behaviour"), option(parameter, "code_map"));
    return key == "exp_avg" ? maps.exp_avg : maps.exp_avg_sq;
  } catch (const Error& error) {
    fail("{}: {}", path(), error.what());
  }
}

Tensor SavedState::values(const Parameter& parameter, std::string_view key) const {
  if (!is_quantized(parameter, key)) return tensor(parameter, key);
  return dequantize_blockwise(quantized(parameter, key), code_map_of(parameter, key));
}

Tensor SavedState::factored_second_moment(const Parameter& parameter) const {
  const auto has = [&](std::string_view key) {
    return std::ranges::count(parameter.tensors, key, &StateSize::Entry::key) > 0;
  };
  const bool torch = has("row_var") && has("col_var");
  if (!torch && !(has("exp_avg_sq_row") && has("exp_avg_sq_col"))) return {};
  const std::vector<double> row =
      tensor(parameter, torch ? "row_var" : "exp_avg_sq_row").to_vector<double>();
  const std::vector<double> column =
      tensor(parameter, torch ? "col_var" : "exp_avg_sq_col").to_vector<double>();
  const Shape shape = parameter.shape.value_or(Shape());
  if (shape.numel() == 0) return Tensor::empty(shape);
  const int rank = shape.rank();
  const int64_t rows = rank < 2 ? 1 : shape[rank - 2], columns = rank < 1 ? 1 : shape[rank - 1];
  const int64_t matrices = shape.numel() / (rows * columns);
  check(int64_t(row.size()) == matrices * rows && int64_t(column.size()) == matrices * columns,
        "{}: {} has {} row and {} column means, which do not fit each other", path(),
        parameter.name, row.size(), column.size());
  Tensor second = Tensor::empty(shape, DType::f32);
  float* to = second.data<float>();
  for (int64_t m = 0; m < matrices; ++m) {
    const double* r = row.data() + m * rows;
    const double* c = column.data() + m * columns;
    double mean = 0;
    for (int64_t i = 0; i < rows; ++i)
      mean += r[i] / double(rows);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        *to++ = mean == 0 ? 0.0f : float(r[i] / mean * c[j]);
  }
  return second;
}

}  // namespace minim::optim
