#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "autograd/ops/checks.h"
#include "core/launch.h"
#include "core/math.h"

namespace minim {

// One struct per loss between a value and its target: the loss and its derivative by each.

struct MseLoss {
  static constexpr const char* name = "mse_loss";
  template <class R>
  HD R operator()(R x, R t) const {
    return (x - t) * (x - t);
  }
  template <class R>
  HD R grad_x(R x, R t) const {
    return R(2) * (x - t);
  }
  template <class R>
  HD R grad_target(R x, R t) const {
    return -grad_x(x, t);
  }
};

// Quadratic below beta, linear above; with beta = 0 the absolute difference.
struct SmoothL1Loss {
  const char* name;
  double beta;
  template <class R>
  HD R operator()(R x, R t) const {
    const R b(beta), d = x < t ? t - x : x - t;
    return d < b ? R(0.5) * d * d / b : d - R(0.5) * b;
  }
  template <class R>
  HD R grad_x(R x, R t) const {
    const R b(beta), d = x - t;
    if (d >= b && d > R(0)) return R(1);
    if (d <= -b && d < R(0)) return R(-1);
    return b > R(0) ? d / b : R(0) * d;  // keeps NaN
  }
  template <class R>
  HD R grad_target(R x, R t) const {
    return -grad_x(x, t);
  }
};

// -t log(sigmoid(x)) - (1 - t) log(1 - sigmoid(x)) = (1 - t) x - log(sigmoid(x)), written so that
// no exponential overflows.
struct BceWithLogitsLoss {
  static constexpr const char* name = "binary_cross_entropy_with_logits";
  template <class R>
  HD R operator()(R x, R t) const {
    const R magnitude = x < R(0) ? -x : x;
    return (R(1) - t) * x - (x < R(0) ? x : R(0)) + math::log1p(math::exp(-magnitude));
  }
  template <class R>
  HD R grad_x(R x, R t) const {
    return math::sigmoid(x) - t;
  }
  template <class R>
  HD R grad_target(R x, R) const {
    return -x;
  }
};

// Every loss by itself.
template <class Loss, class T>
struct LossElements {
  T* y;
  const T *x, *target;
  Loss loss;
  HD void operator()(int64_t i) const { y[i] = T(loss(Compute<T>(x[i]), Compute<T>(target[i]))); }
};

// Sums of parts of fixed length.
template <class Loss, class T>
struct LossParts {
  static constexpr int64_t part_size = 4096;
  Compute<T>* partial;
  const T *x, *target;
  int64_t n;
  Loss loss;

  template <class Group>
  HD void operator()(const Group& g, int64_t part) const {
    using R = Compute<T>;
    const int64_t first = part * part_size;
    const T *in = x + first, *to = target + first;
    const R total = g.sum(first + part_size < n ? part_size : n - first,
                          [&](int64_t i) { return loss(R(in[i]), R(to[i])); });
    if (g.leader()) partial[part] = total;
  }
};

// The gradient by the value, or by the target.
template <class Loss, class T, bool by_target>
struct LossBackward {
  T* dx;
  const T *dy, *x, *target;
  int64_t dy_step;  // 1, or 0 where all elements share one dy
  Compute<T> scale;
  Loss loss;

  HD void operator()(int64_t i) const {
    const Compute<T> v(x[i]), t(target[i]);
    dx[i] = T(Compute<T>(dy[i * dy_step]) * scale *
              (by_target ? loss.grad_target(v, t) : loss.grad_x(v, t)));
  }
};

template <bool by_target, class Loss>
static Tensor loss_gradient(const Loss& loss, const Tensor& any_dy, const Tensor& x,
                            const Tensor& target, bool shared, double scale) {
  const Tensor dy = any_dy.contiguous(), dx = Tensor::empty_like(x);
  dispatch_float(x.dtype(), loss.name, [&]<class T>() {
    launch_elements(
        x.device(), x.numel(),
        LossBackward<Loss, T, by_target>{dx.data<T>(), dy.data<T>(), x.data<T>(), target.data<T>(),
                                         shared ? 0 : 1, Compute<T>(scale), loss});
  });
  return dx;
}

template <class Loss>
static Tensor apply_loss(const Loss& loss, const Tensor& given_x, const Tensor& given_target,
                         Reduction reduction) {
  const Tensor any_x = to_full_precision(given_x), any_target = to_full_precision(given_target);
  check_alike(loss.name, any_x, any_target);
  check(any_x.shape() == any_target.shape(), "{}: target {} must have the input's shape {}",
        loss.name, any_target.shape(), any_x.shape());
  const Tensor x = any_x.contiguous(), target = any_target.contiguous();
  const int64_t n = x.numel();
  const bool none = reduction == Reduction::none;
  const double scale = reduction == Reduction::mean ? 1.0 / double(n) : 1.0;
  Tensor y = none ? Tensor::empty_like(x) : Tensor();
  dispatch_float(x.dtype(), loss.name, [&]<class T>() {
    if (none) {
      launch_elements(x.device(), n,
                      LossElements<Loss, T>{y.data<T>(), x.data<T>(), target.data<T>(), loss});
      return;
    }
    using Parts = LossParts<Loss, T>;
    const int64_t parts = (n + Parts::part_size - 1) / Parts::part_size;
    const Tensor partial = x.new_empty({parts}, dtype_of<Compute<T>>);
    launch_rows(x.device(), parts, Parts::part_size,
                Parts{partial.data<Compute<T>>(), x.data<T>(), target.data<T>(), n, loss});
    y = convert(affine(sum(partial), scale, 0.0), x.dtype());
  });
  const bool wants_dx = any_x.requires_grad(), wants_dtarget = any_target.requires_grad();
  return record(loss.name, y, {any_x, any_target},
                [=, x = Saved(x), target = Saved(target)](const Tensor& dy) -> Tensors {
                  Tensor dx, dtarget;
                  if (wants_dx)
                    dx = loss_gradient<false>(loss, dy, x.get(), target.get(), !none, scale);
                  if (wants_dtarget)
                    dtarget = loss_gradient<true>(loss, dy, x.get(), target.get(), !none, scale);
                  return {dx, dtarget};
                });
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target,
                                        Reduction reduction) {
  return apply_loss(BceWithLogitsLoss{}, x, target, reduction);
}

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  return apply_loss(MseLoss{}, x, target, reduction);
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  return apply_loss(SmoothL1Loss{"l1_loss", 0.0}, x, target, reduction);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, double beta, Reduction reduction) {
  check(beta >= 0, "smooth_l1_loss: beta = {} must not be negative", beta);
  return apply_loss(SmoothL1Loss{"smooth_l1_loss", beta}, x, target, reduction);
}

}  // namespace minim
