#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "optim/optimizer.h"

namespace minim::optim {

// Adafactor in the order of operations of torch.optim.Adafactor. It differs from Hugging Face's
// (optim/adafactor.h) in the rate, of which it takes no more than the paper's, in decay by the rate
// as given, and in eps1, which bounds V from below instead of being added to squares:
//
//   p <- p * (1 - lr * weight_decay)
//   a <- min(lr, 1 / sqrt(t)) * max(eps2, RMS(p))                RMS(p) before the decay
//   w <- t^beta2_decay
//   r <- r + w * (mean over columns of g^2 - r),  c <- c + w * (mean over rows of g^2 - c)
//   U <- g / sqrt(max(V, eps1^2)),  V_ij = r_i * c_j / max(eps1, mean(r))
//   p <- p - a * U / max(1, RMS(U) / d)
//
// Gradients as small as eps1 are no longer normalised: the step becomes that of plain gradient
// descent, and soon nothing. Prefer the other rule unless torch's results are wanted.
struct AdafactorTorchRule {
  static constexpr std::string_view name = "adafactor_torch";
  static constexpr bool batches = true;

  struct Options {
    double lr = 1e-2;
    double beta2_decay = -0.8;
    std::optional<double> eps1 = {};  // none: the machine epsilon of the state's type
    double eps2 = 1e-3;               // least scale of a parameter
    double d = 1.0;                   // largest RMS of an update
    double weight_decay = 0.0;
    bool maximize = false;
  };
  // Tensors are f32, or f64 for an f64 parameter.
  struct State {
    Tensor row_var;    // [..., rows, 1] of [..., rows, columns]
    Tensor col_var;    // [..., 1, columns]
    Tensor variance;   // of vectors and scalars, in place of the two above
    int64_t step = 0;  // updates of this parameter
  };

  static void list_options(Options& options, OptionFields& fields);
  static void list_state(State& state, const ParameterSpec& parameter, const Options& options,
                         StateFields& fields);
  static void validate(const Options& options);
  static void update(const Update& u, State& state, const Options& options);
};
using AdafactorTorch = Optimizer<AdafactorTorchRule>;

}  // namespace minim::optim
