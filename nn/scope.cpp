#include "nn/scope.h"

#include <cmath>
#include <unordered_map>
#include <vector>

namespace minim::nn {

struct Scope::Tree {
  ModelOptions options;
  Generator generator;
  bool training = true;
  NamedTensors parameters, buffers;
  std::unordered_map<std::string, Shape> shapes;  // of both

  void claim(const std::string& name, const Shape& shape) {
    const auto [it, is_new] = shapes.emplace(name, shape);
    check(is_new, "parameter: \"{}\" exists already with shape {}", name, it->second);
  }
};

namespace {

// Members of the list whose names lie at or below a path.
NamedTensors below(const NamedTensors& all, const std::string& path) {
  NamedTensors found;
  for (const NamedTensor& item : all)
    if (path.empty() || item.name.starts_with(path + ".")) found.push_back(item);
  return found;
}

void fill_sinusoidal(const Tensor& table) {
  const int64_t columns = table.size(1);
  std::vector<double> values;
  for (int64_t row = 0; row < table.size(0); ++row)
    for (int64_t column = 0; column < columns; ++column) {
      const int64_t pair = column - column % 2;
      const double angle = double(row) / std::pow(10000.0, double(pair) / double(columns));
      values.push_back(column % 2 == 0 ? std::sin(angle) : std::cos(angle));
    }
  copy(table, Tensor::from(values, table.shape()));
}

Tensor initialised(const std::string& name, const Shape& shape, Init init,
                   const ModelOptions& options) {
  const memory::Scope scope(memory::Category::weights);
  const Tensor value = Tensor::empty(shape, options.dtype);
  switch (init.kind) {
    case Init::Kind::constant:
      fill(value, init.a);
      break;
    case Init::Kind::normal:
      fill_normal(value, 0, init.a, options.seed, name);
      break;
    case Init::Kind::uniform:
      fill_uniform(value, -init.a, init.a, options.seed, name);
      break;
    case Init::Kind::sinusoidal:
      fill_sinusoidal(value);
      break;
  }
  if (init.zeroed_row) {
    const int64_t size = shape.numel() / shape[0];
    fill(value.view({size}, {1}, *init.zeroed_row * size), 0);
  }
  return value.to(options.device);
}

}  // namespace

Scope::Scope(ModelOptions options) : tree_(std::make_shared<Tree>()) {
  tree_->generator.seed = options.seed;
  tree_->options = std::move(options);
}

Scope Scope::operator/(std::string_view child) const {
  Scope below = *this;
  below.path_ = full_name(child);
  return below;
}

std::string Scope::full_name(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

Tensor Scope::parameter(std::string_view name, const Shape& shape, Init init) const {
  const std::string full = full_name(name);
  tree_->claim(full, shape);
  Tensor value;
  if (tree_->options.source) value = tree_->options.source(full, shape);
  if (value.defined())
    check(value.shape() == shape, "parameter: \"{}\" is {} in the checkpoint, {} in the model",
          full, value.shape(), shape);
  else
    value = initialised(full, shape, init, tree_->options);
  value.set_requires_grad();
  tree_->parameters.push_back({full, value});
  return value;
}

Tensor Scope::buffer(std::string_view name, const Tensor& value) const {
  const std::string full = full_name(name);
  tree_->claim(full, value.shape());
  tree_->buffers.push_back({full, value});
  return value;
}

const ModelOptions& Scope::options() const {
  return tree_->options;
}

NamedTensors Scope::parameters() const {
  return below(tree_->parameters, path_);
}

NamedTensors Scope::buffers() const {
  return below(tree_->buffers, path_);
}

bool Scope::training() const {
  return tree_->training;
}

void Scope::set_training(bool on) const {
  tree_->training = on;
}

Generator& Scope::generator() const {
  return tree_->generator;
}

}  // namespace minim::nn
