#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/checkpoint.h"
#include "nn/scope.h"

// Loading weights by Hugging Face's names, with the quirks that files in the wild have.
namespace minim::models {

// How a checkpoint is loaded. The defaults refuse whatever would leave a random body unnoticed.
struct LoadOptions {
  std::optional<int64_t> labels = {};    // size of the head; else what config.json says
  uint64_t seed = 42;                    // for weights that the checkpoint does not have
  DType dtype = DType::f32;              // of the parameters, whatever the file's
  Device device = {};                    // where they are put, from the file without a detour
  bool map_weights = false;              // use the mapped file's memory where dtypes agree
  bool ignore_mismatched_sizes = false;  // tensors of another shape are initialised anew
  bool allow_missing_body = false;       // so are body tensors that are absent
  bool drop_extra_layers = false;        // the file may have more layers than config.json
  bool strip_module_prefix = false;      // names may start with "module."
};

// What loading did, by parameter name.
struct LoadReport {
  int64_t loaded = 0;
  std::vector<std::string> initialised;  // new: absent from the checkpoint, or of another shape
  std::vector<std::string> dropped;      // in the checkpoint, of no use to this model
  std::vector<std::string> notes;        // sentences for the user

  // "101 tensors loaded, 4 new, 5 dropped"
  std::string summary() const;
};

// A checkpoint whose names have been brought into the form that a model asks for, and the account
// of what the model took. `body` is the name of the model without its head, "distilbert".
class PretrainedWeights {
 public:
  // Throws if the names start with "module." and that is not to be stripped.
  PretrainedWeights(Checkpoint checkpoint, std::string body, LoadOptions options);

  // For ModelOptions::source. Tensors of another shape are noted and answered with nothing.
  Tensor take(const std::string& name, const Shape& shape);

  // To be called when the model is complete; `n_layers` is its number of layers. Throws, naming the
  // tensors, if body weights are missing, shapes differ, or the file has more layers.
  LoadReport finish(int64_t n_layers);

 private:
  bool is_body(std::string_view name) const { return name.starts_with(body_ + "."); }

  Checkpoint checkpoint_;
  std::string body_;
  LoadOptions options_;
  std::unordered_map<std::string, std::string> stored_names_;  // model's name -> file's name
  std::unordered_map<std::string, bool> taken_;                // model's name -> was it asked for
  std::vector<std::string> missing_, mismatched_;
  bool doomed_ = false;  // finish() will throw
  LoadReport report_;
};

}  // namespace minim::models
