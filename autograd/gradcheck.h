#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/tensor.h"

namespace minim {

struct GradcheckOptions {
  double step = 0;       // between differences; 0: 2^-7 for f32, 2^-13 for f64
  double tolerance = 0;  // allowed error; 0: 1e-3 for f32, 1e-8 for f64
  uint64_t seed = 0;     // of the projection
};

struct GradcheckResult {
  bool ok = false;
  double worst_error = 0;  // largest |backward - differences| / (1 + |differences|)
  std::string message;     // names the input and the element that are worst, or what else is wrong
};

// Compares the backward of a function of tensors with central differences of four points, for a
// random weighting of its result summed in f64. Also checks that gradients are added to those that
// are there already and that they do not depend on what memory held before. f32 and f64 inputs are
// copied, strides and all, and differentiated; integer and undefined ones are passed through. The
// function must give the same values each time and be smooth within two steps of the inputs.
GradcheckResult gradcheck(const std::function<Tensor(const Tensors&)>& function,
                          const Tensors& inputs, const GradcheckOptions& options = {});

}  // namespace minim
