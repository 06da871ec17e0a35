#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "optim/optimizer.h"

namespace minim::optim {

// Adafactor (Shazeer & Stern, "Adafactor: adaptive learning rates with sublinear memory cost",
// 2018), in the order of operations of Hugging Face's transformers.optimization.Adafactor. Of a
// matrix it keeps the mean square of each row and of each column, r and c, in place of a mean
// square per weight. With step t, gradient g and RMS(x) = sqrt(mean(x^2)):
//
//   a    <- lr, or with relative_step min(1e-2, 1 / sqrt(t))     1e-6 * t for 1e-2: warmup_init
//   a    <- a * max(eps2, RMS(p))                                with scale_parameter
//   b2   <- 1 - t^decay_rate                                     so the first step forgets zeros
//   r    <- b2 * r + (1 - b2) * mean over columns of (g^2 + eps1)
//   c    <- b2 * c + (1 - b2) * mean over rows of (g^2 + eps1)
//   U    <- g / sqrt(V),  V_ij = r_i * c_j / mean(r)
//   U    <- a * U / max(1, RMS(U) / clip_threshold)
//   m    <- beta1 * m + (1 - beta1) * U,  U <- m                 with beta1
//   p    <- p - weight_decay * a * p - U
//
// Tensors of more dimensions are stacks of matrices, the last two; vectors and scalars have V of
// their own shape. RMS(p) and RMS(U) are of the whole tensor.
struct AdafactorRule {
  static constexpr std::string_view name = "adafactor";
  static constexpr bool batches = true;

  // A rate is either given or found by relative_step: with both, or with neither, they are refused.
  struct Options {
    std::optional<double> lr = {};
    double eps1 = 1e-30;          // added to each square
    double eps2 = 1e-3;           // least scale of a parameter
    double clip_threshold = 1.0;  // largest RMS of an update
    double decay_rate = -0.8;
    std::optional<double> beta1 = {};  // average the updates, at 4 bytes per weight
    double weight_decay = 0.0;
    bool scale_parameter = true;  // steps relative to the size of the parameter
    bool relative_step = true;    // the rate is a function of the step alone
    bool warmup_init = false;     // of relative_step: a slow start
  };
  // Tensors are f32, or f64 for an f64 parameter.
  struct State {
    Tensor exp_avg_sq_row;  // [..., rows] of [..., rows, columns]
    Tensor exp_avg_sq_col;  // [..., columns]
    Tensor exp_avg_sq;      // of vectors and scalars, in place of the two above
    Tensor exp_avg;         // with beta1: average of scaled, clipped updates, not bias-corrected
    int64_t step = 0;       // updates of this parameter
    double rms = 0;         // RMS of the parameter before its last update
    Tensor rms_there;       // the same on a CUDA device; f64 [1]
  };

  static void list_options(Options& options, OptionFields& fields);
  static void list_state(State& state, const ParameterSpec& parameter, const Options& options,
                         StateFields& fields);
  static void validate(const Options& options);
  static bool finds_rate(const Options& options) { return options.relative_step; }
  static double found_rate(const State& state, const Options& options);
  static void fetch(State& state);
  static void update(const Update& u, State& state, const Options& options);
};
using Adafactor = Optimizer<AdafactorRule>;

}  // namespace minim::optim
