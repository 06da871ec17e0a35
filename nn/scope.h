#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/random.h"
#include "core/tensor.h"

namespace minim::nn {

// How a new parameter is filled. The values depend on (seed, full name), not on what was made
// before.
struct Init {
  enum class Kind { constant, normal, uniform, sinusoidal };
  Kind kind = Kind::constant;
  double a = 0;
  std::optional<int64_t> zeroed_row = {};

  static Init zeros() { return {Kind::constant, 0, {}}; }
  static Init ones() { return {Kind::constant, 1, {}}; }
  // N(0, std^2)
  static Init normal(double std) { return {Kind::normal, std, {}}; }
  // U(-bound, bound)
  static Init uniform(double bound) { return {Kind::uniform, bound, {}}; }
  // Even columns sin, odd columns cos of row / 10000^(2 * floor(column / 2) / columns), the fixed
  // positions of Vaswani et al., 2017.
  static Init sinusoidal() { return {Kind::sinusoidal, 0, {}}; }
  // The same with one row of zeros.
  Init zero_row(std::optional<int64_t> row) const {
    Init with = *this;
    with.zeroed_row = row;
    return with;
  }
};

// What all layers of one model share.
struct ModelOptions {
  uint64_t seed = 42;
  DType dtype = DType::f32;
  // Where new weights are put; their values do not depend on it.
  Device device = {};
  // Standard deviation of new linear and embedding weights, Hugging Face's `initializer_range`.
  double initializer_range = 0.02;
  // Asked for each parameter before it is initialised, for example by a checkpoint; answers with an
  // undefined tensor where it has none of that name.
  std::function<Tensor(const std::string& name, const Shape& shape)> source = {};
};

// A place in a model's tree of parameters. Its path, "distilbert.transformer.layer.0", is the
// prefix of the Hugging Face keys of the layer that stands there. Layers ask their Scope for
// parameters; that is the whole registration. A default Scope lets a layer stand alone.
class Scope {
 public:
  explicit Scope(ModelOptions options = {});

  // The place of a child: at / "layer" / 0 / "attention".
  Scope operator/(std::string_view child) const;
  Scope operator/(int64_t index) const { return *this / std::to_string(index); }

  // A new trainable parameter "path.name"; throws if the model has one of that name.
  Tensor parameter(std::string_view name, const Shape& shape, Init init) const;
  // A tensor that is saved with the model but not trained.
  Tensor buffer(std::string_view name, const Tensor& value) const;

  const std::string& path() const { return path_; }
  const ModelOptions& options() const;

  // Parameters and buffers at or below this place, in the order in which they were made.
  NamedTensors parameters() const;
  NamedTensors buffers() const;
  // Train or eval mode and the source of dropout masks, one of each for the whole model.
  bool training() const;
  void set_training(bool on) const;
  Generator& generator() const;

 private:
  struct Tree;
  std::string full_name(std::string_view name) const;

  std::shared_ptr<Tree> tree_;
  std::string path_;
};

}  // namespace minim::nn
