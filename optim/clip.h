#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/tensor.h"
#include "optim/any_optimizer.h"

namespace minim::optim {

// What is not a finite number in a gradient.
struct NonFinite {
  std::string parameter;  // the first that has any
  int64_t nans, infinities, elements;
  Shape first;         // where in the parameter the first of them is: [row, column]
  double first_value;  // NaN or an infinity

  // "the gradient of q_lin.weight holds 2 NaN and 1 infinity among 768 elements"
  std::string to_string() const;
};

// L2 norm over the gradients of all parameters together, summed in f64 in an order that depends on
// shapes alone. Parameters without gradient count 0; a tensor listed twice counts once. Not finite
// where a gradient is not.
double gradient_norm(const NamedTensors& parameters);

// The first parameter whose gradient holds a NaN or an infinity.
std::optional<NonFinite> find_non_finite(const NamedTensors& parameters);
// Why the norm of these gradients is not finite: that parameter in words, or that the norm itself
// overflows.
std::string why_not_finite(const NamedTensors& parameters);

// What clipping multiplies onto gradients of that norm: max_norm / (norm + 1e-6), at most 1. To be
// given to step() as gradient_scale, which saves a pass over the gradients.
double clip_coefficient(double norm, double max_norm);

// Norm and coefficient of a step on the device that has the gradients: one f64 each.
struct Clipping {
  Tensor norm, coefficient;
};
// gradient_norm() and clip_coefficient() in one, computed where the gradients are, without waiting:
//   const auto [norm, coefficient] = clip_on_device(model.parameters(), 1.0);
//   optimizer.step({.gradient_factor = coefficient});
// To skip, the coefficient of a norm that is not finite is NaN, which such a step leaves out. Where
// gradients are those of a loss times `loss_scale`, an f64 of one element beside them, the norm is
// that of the loss's own, and the coefficient takes the scale away.
Clipping clip_on_device(const NamedTensors& parameters, double max_norm,
                        OnNonFinite on_non_finite = OnNonFinite::apply,
                        const Tensor& loss_scale = {});

// Scales all gradients so that their norm is at most max_norm; returns the norm before, as logs
// show it. Throws, and scales nothing, where a gradient is not finite, naming its parameter.
double clip_grad_norm(const NamedTensors& parameters, double max_norm);

// Limits each element of each gradient to [-limit, limit]; NaN stays NaN.
void clip_grad_value(const NamedTensors& parameters, double limit);

}  // namespace minim::optim
