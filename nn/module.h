#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "nn/scope.h"

namespace minim::nn {

// What every layer and model has: its Scope, and with it the list of its parameters. Layers are
// values whose copies share parameters; forward() is an ordinary member function of each.
class Module {
 public:
  // With full names, in the order in which they were made.
  NamedTensors parameters() const { return at_.parameters(); }
  NamedTensors buffers() const { return at_.buffers(); }
  // Parameters, then buffers: all that a checkpoint holds.
  NamedTensors state_dict() const;
  // Copies values in; one error lists the names that are missing, unexpected or of another shape.
  void load_state_dict(const NamedTensors& values) const;

  // Elements in all parameters.
  int64_t parameter_count() const;
  void zero_grad() const;
  // Parameters whose full name matches a shell pattern ("distilbert.embeddings.*") get no gradient.
  // Returns how many tensors; throws if there are none.
  int64_t freeze(const std::string& pattern) const;

  // Moves all parameters and buffers at or below this place to a device, whoever holds them;
  // gradients are dropped. An optimizer is made, or loads its state, after that.
  void to(Device device) const;
  // Where the first parameter is; the CPU where there is none.
  Device device() const;

  // Mode of the whole model that this layer is part of: dropout acts in training only.
  void train(bool on = true) const { at_.set_training(on); }
  void eval() const { train(false); }
  bool training() const { return at_.training(); }
  // Source of the dropout masks of the whole model; to be saved for an exact resume.
  Generator& generator() const { return at_.generator(); }

 protected:
  explicit Module(Scope at) : at_(std::move(at)) {}
  const Scope& at() const { return at_; }

 private:
  Scope at_;
};

}  // namespace minim::nn
