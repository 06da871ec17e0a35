#include "optim/clip.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "core/launch.h"
#include "core/math.h"
#include "optim/option_checks.h"

#if defined(MINIM_WITH_CUDA)
#include "core/cuda/launch_list.h"
#endif

namespace minim::optim {

namespace {

// Elements that are summed by themselves before the sums are added up.
constexpr int64_t block = 32768;

// Calls use(parameter, gradient) for each parameter that has a gradient, once.
template <class Use>
void for_each_gradient(const NamedTensors& parameters, const Use& use) {
  std::unordered_set<const void*> seen;
  for (const NamedTensor& parameter : parameters) {
    const Tensor gradient = parameter.tensor.grad();
    if (!gradient.defined() || !seen.insert(parameter.tensor.impl().get()).second) continue;
    use(parameter, gradient);
  }
}

}  // namespace

// Sum of (x * scale)^2 over each `width` elements of a tensor.
template <class T>
struct SquareSums {
  struct Tensors {
    double* sums;
    const T* x;
    int64_t n;
    bool operator==(const Tensors&) const = default;
  };
  struct Numbers {
    double scale;
    int64_t width;
    bool operator==(const Numbers&) const = default;
  };
  Tensors tensors;
  Numbers numbers;

  template <class Group>
  HD void operator()(const Group& group, int64_t row) const {
    const int64_t width = numbers.width;
    const int64_t begin = row * width, left = tensors.n - begin;
    const T* const first = tensors.x + begin;
    const double factor = numbers.scale;
    const double sum = group.sum(left < width ? left : width, [=](int64_t i) {
      const double value = double(Compute<T>(first[i])) * factor;
      return value * value;
    });
    if (group.leader()) tensors.sums[row] = sum;
  }
};

// Norm and coefficient from sums of squares.
struct FinishClipping {
  double *norm, *coefficient;
  const double *sums, *loss_scale;  // or null
  int64_t n;
  double max_norm;
  bool skips;  // NaN where the norm is not finite

  template <class Group>
  HD void operator()(const Group& group, int64_t) const {
    const double* const from = sums;
    const double sum = group.sum(n, [=](int64_t i) { return from[i]; });
    if (!group.leader()) return;
    const double scale = loss_scale != nullptr ? *loss_scale : 1.0;
    *norm = math::sqrt(sum) / scale;
    *coefficient = coefficient_of(*norm, max_norm, skips) / scale;
  }
  HD static double coefficient_of(double norm, double max_norm, bool skips) {
    if (skips && norm - norm != 0.0) return norm - norm;
    const double ratio = max_norm / (norm + 1e-6);
    return ratio < 1.0 ? ratio : 1.0;
  }
};

// NaN and infinite elements of each block of a tensor.
template <class T>
struct CountNonFinite {
  int64_t *nans, *infinities;
  const T* x;
  int64_t n;

  template <class Group>
  HD void operator()(const Group& group, int64_t row) const {
    using R = Compute<T>;
    const T* first = x + row * block;
    const int64_t width = n - row * block < block ? n - row * block : block;
    const int64_t nan =
        group.sum(width, [&](int64_t i) { return int64_t(R(first[i]) != R(first[i])); });
    // x - x is NaN for an infinity too.
    const int64_t both = group.sum(width, [&](int64_t i) {
      const R value = R(first[i]);
      return int64_t(value - value != R(0));
    });
    if (group.leader()) {
      nans[row] = nan;
      infinities[row] = both - nan;
    }
  }
};

template <class T>
struct ScaleGradient {
  T* x;
  Compute<T> factor;
  HD void operator()(int64_t i) const { x[i] = T(Compute<T>(x[i]) * factor); }
};

template <class T>
struct LimitGradient {
  T* x;
  Compute<T> limit;
  HD void operator()(int64_t i) const {
    const Compute<T> value = x[i];
    x[i] = T(value > limit ? limit : (value < -limit ? -limit : value));
  }
};

namespace {

// Place and value of the first number in a tensor that is none; there must be one.
void locate_first(const Tensor& gradient, NonFinite& found) {
  const Tensor dense = gradient.to(Device::cpu());
  dispatch_float(dense.dtype(), "find_non_finite", [&]<class T>() {
    const auto values = dense.values<T>();
    const auto first = std::ranges::find_if(
        values, [](T value) { return !std::isfinite(double(Compute<T>(value))); });
    found.first_value = double(Compute<T>(*first));
    found.first = dense.shape();
    int64_t flat = first - values.begin();
    for (int axis = dense.shape().rank() - 1; axis >= 0; --axis) {
      found.first[axis] = flat % dense.shape()[axis];
      flat /= dense.shape()[axis];
    }
  });
}

double sum_of(const Tensor& per_block) {
  double sum = 0;
  for (const double partial : per_block.values<double>())
    sum += partial;
  return sum;
}

#if defined(MINIM_WITH_CUDA)

Device device_of(const NamedTensors& parameters) {
  return parameters.empty() ? Device::cpu() : parameters[0].tensor.device();
}

// The sums of squares of all gradients on a device, of a few thousand elements each.
Tensor sums_on_device(const NamedTensors& parameters, Device device, double scale) {
  constexpr int64_t width = 8192;
  const auto rows_of = [](const Tensor& x) { return (x.numel() + width - 1) / width; };
  Tensors gradients;
  int64_t rows = 0;
  for_each_gradient(parameters, [&](const NamedTensor& parameter, const Tensor& gradient) {
    check(gradient.device() == device, "gradient_norm: {} is on {}, other parameters on {}",
          parameter.name, gradient.device(), device);
    gradients.push_back(gradient.contiguous());
    rows += rows_of(gradient);
  });
  const Tensor sums = Tensor::empty({rows}, DType::f64, device);
  cuda::LaunchList launches(device);
  double* next = sums.data<double>();
  for (const Tensor& x : gradients) {
    dispatch_float(x.dtype(), "gradient_norm", [&]<class T>() {
      launches.add<SquareSums<T>>(0, rows_of(x), {next, x.data<T>(), x.numel()}, {scale, width});
    });
    next += rows_of(x);
  }
  launches.run();
  return sums;
}

#endif

double norm_times(const NamedTensors& parameters, double scale) {
  const memory::Scope scope(memory::Category::workspace);
  double sum = 0;
#if defined(MINIM_WITH_CUDA)
  if (const Device device = device_of(parameters); device.is_cuda()) {
    const Tensor sums = sums_on_device(parameters, device, scale);
    return std::sqrt(sum_of(sums.to(Device::cpu())));
  }
#endif
  for_each_gradient(parameters, [&](const NamedTensor&, const Tensor& gradient) {
    const Tensor dense = gradient.contiguous();
    const int64_t n = dense.numel(), rows = (n + block - 1) / block;
    const Tensor sums = Tensor::empty({rows}, DType::f64);
    dispatch_float(dense.dtype(), "gradient_norm", [&]<class T>() {
      launch_rows(dense.device(), rows, block,
                  SquareSums<T>{{sums.data<double>(), dense.data<T>(), n}, {scale, block}});
    });
    sum += sum_of(sums);
  });
  return std::sqrt(sum);
}

// Runs Kernel<T>{elements, value} over each gradient in place.
template <template <class> class Kernel>
void change_gradients(const NamedTensors& parameters, std::string_view op, double value) {
  for_each_gradient(parameters, [&](const NamedTensor& parameter, const Tensor& gradient) {
    const Tensor dense = gradient.contiguous();
    dispatch_float(dense.dtype(), op, [&]<class T>() {
      launch_elements(dense.device(), dense.numel(), Kernel<T>{dense.data<T>(), Compute<T>(value)});
    });
    dense.bump_version();
    if (!dense.is_same(gradient)) Tensor(parameter.tensor).set_grad(dense);
  });
}

}  // namespace

std::string NonFinite::to_string() const {
  const auto infinite =
      fmt::format("{} {}", infinities, infinities == 1 ? "infinity" : "infinities");
  return fmt::format("the gradient of {} holds {} among {} elements", parameter,
                     infinities == 0 ? fmt::format("{} NaN", nans)
                     : nans == 0     ? infinite
                                     : fmt::format("{} NaN and {}", nans, infinite),
                     elements);
}

double gradient_norm(const NamedTensors& parameters) {
  const double norm = norm_times(parameters, 1.0);
  // Squares of f64 gradients may leave the range of f64 where the norm does not.
  if (std::isfinite(norm) || find_non_finite(parameters)) return norm;
  return norm_times(parameters, 0x1p-600) * 0x1p600;
}

std::optional<NonFinite> find_non_finite(const NamedTensors& parameters) {
  const memory::Scope scope(memory::Category::workspace);
  std::optional<NonFinite> found;
  for_each_gradient(parameters, [&](const NamedTensor& parameter, const Tensor& gradient) {
    if (found) return;
    const Tensor dense = gradient.contiguous();
    const int64_t n = dense.numel(), rows = (n + block - 1) / block;
    const Tensor nans = dense.new_empty({rows}, DType::i64);
    const Tensor infinities = dense.new_empty({rows}, DType::i64);
    dispatch_float(dense.dtype(), "find_non_finite", [&]<class T>() {
      launch_rows(
          dense.device(), rows, block,
          CountNonFinite<T>{nans.data<int64_t>(), infinities.data<int64_t>(), dense.data<T>(), n});
    });
    NonFinite counts{parameter.name, 0, 0, n, {}, 0};
    for (const int64_t count : nans.to_vector<int64_t>())
      counts.nans += count;
    for (const int64_t count : infinities.to_vector<int64_t>())
      counts.infinities += count;
    if (counts.nans + counts.infinities == 0) return;
    locate_first(dense, counts);
    found = counts;
  });
  return found;
}

std::string why_not_finite(const NamedTensors& parameters) {
  const std::optional<NonFinite> culprit = find_non_finite(parameters);
  return culprit ? culprit->to_string() : "the norm of all gradients overflows";
}

double clip_coefficient(double norm, double max_norm) {
  check_not_negative("clip_grad_norm", "max_norm", max_norm);
  return FinishClipping::coefficient_of(norm, max_norm, false);
}

Clipping clip_on_device(const NamedTensors& parameters, double max_norm, OnNonFinite on_non_finite,
                        const Tensor& loss_scale) {
  check_not_negative("clip_on_device", "max_norm", max_norm);
  const bool skips = on_non_finite == OnNonFinite::skip;
  const memory::Scope scope(memory::Category::workspace);
#if defined(MINIM_WITH_CUDA)
  if (const Device device = device_of(parameters); device.is_cuda()) {
    const Tensor sums = sums_on_device(parameters, device, 1.0);
    const Clipping result = {Tensor::empty({1}, DType::f64, device),
                             Tensor::empty({1}, DType::f64, device)};
    // As one long row, whatever its length: by a block of threads.
    launch_rows(device, 1, element_grain,
                FinishClipping{result.norm.data<double>(), result.coefficient.data<double>(),
                               sums.data<double>(),
                               loss_scale.defined() ? loss_scale.data<double>() : nullptr,
                               sums.numel(), max_norm, skips});
    return result;
  }
#endif
  const double scale = loss_scale.defined() ? loss_scale.item() : 1.0;
  const double norm = gradient_norm(parameters) / scale;
  const double coefficient = FinishClipping::coefficient_of(norm, max_norm, skips) / scale;
  return {Tensor::from({norm}, {1}), Tensor::from({coefficient}, {1})};
}

double clip_grad_norm(const NamedTensors& parameters, double max_norm) {
  const double norm = gradient_norm(parameters);
  if (!std::isfinite(norm)) {
    const std::optional<NonFinite> culprit = find_non_finite(parameters);
    fail("clip_grad_norm: {}",
         culprit ? culprit->to_string() : "the norm exceeds the range of f64");
  }
  const double coefficient = clip_coefficient(norm, max_norm);
  if (coefficient < 1.0) change_gradients<ScaleGradient>(parameters, "clip_grad_norm", coefficient);
  return norm;
}

void clip_grad_value(const NamedTensors& parameters, double limit) {
  check_not_negative("clip_grad_value", "limit", limit);
  change_gradients<LimitGradient>(parameters, "clip_grad_value", limit);
}

}  // namespace minim::optim
