#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "autograd/ops/checked_indices.h"
#include "autograd/ops/checks.h"
#include "core/launch.h"
#include "core/math.h"

namespace minim {

// What the three kernels know of the targets. With s the label smoothing and w the class weights, a
// row's loss is (1 - s) w[target] (-log p[target]) + s / classes * (sum over c of w[c] (-log
// p[c])).
template <class T, class Id>
struct Targets {
  const Id* target;
  const T* weight;  // null for weights of 1
  int64_t classes, ignore_index;
  Compute<T> smoothing;

  HD bool ignored(int64_t row) const { return int64_t(target[row]) == ignore_index; }
  HD Compute<T> weight_of(int64_t c) const {
    return weight ? Compute<T>(weight[c]) : Compute<T>(1);
  }
};

// losses: [rows]; log p = x - largest - log_sum, both kept per row for the backward.
template <class T, class Id>
struct CrossEntropyForward {
  Compute<T>*losses, *largest, *log_sum;
  const T* x;
  Targets<T, Id> targets;

  template <class Group>
  HD void operator()(const Group& g, int64_t row) const {
    using R = Compute<T>;
    if (targets.ignored(row)) {
      if (g.leader()) losses[row] = largest[row] = log_sum[row] = R(0);
      return;
    }
    const int64_t n = targets.classes, t = int64_t(targets.target[row]);
    const T* in = x + row * n;
    const R m = g.max(n, [&](int64_t i) { return R(in[i]); });
    const R log_s = math::log(g.sum(n, [&](int64_t i) { return math::exp(R(in[i]) - m); }));
    const R s = targets.smoothing;
    R loss = (R(1) - s) * targets.weight_of(t) * (log_s - (R(in[t]) - m));
    if (s > R(0))
      loss += s / R(n) *
              g.sum(n, [&](int64_t i) { return targets.weight_of(i) * (log_s - (R(in[i]) - m)); });
    if (g.leader()) {
      losses[row] = loss;
      largest[row] = m;
      log_sum[row] = log_s;
    }
  }
};

// y = (sum of the losses) / divisor, which for the mean is the weight of the rows that count.
template <class T, class Id>
struct CrossEntropyReduce {
  T* y;
  Compute<T>* divisor;
  const Compute<T>* losses;
  int64_t rows;
  bool mean;
  Targets<T, Id> targets;

  template <class Group>
  HD void operator()(const Group& g, int64_t) const {
    using R = Compute<T>;
    const R total = g.sum(rows, [&](int64_t row) { return losses[row]; });
    const R by = mean ? g.sum(rows,
                              [&](int64_t row) {
                                return targets.ignored(row)
                                           ? R(0)
                                           : targets.weight_of(int64_t(targets.target[row]));
                              })
                      : R(1);
    if (g.leader()) {
      *divisor = by;
      *y = T(total / by);
    }
  }
};

// With W = (1 - s) w[target] + s / classes * (sum of w):
// dx[c] = dy / divisor * (p[c] W - s / classes * w[c] - (1 - s) w[target] [c = target]).
template <class T, class Id>
struct CrossEntropyBackward {
  T* dx;
  const T *dy, *x;
  const Compute<T>*largest, *log_sum, *divisor;
  int64_t dy_step;  // 1, or 0 where all rows share one dy
  Targets<T, Id> targets;

  template <class Group>
  HD void operator()(const Group& g, int64_t row) const {
    using R = Compute<T>;
    const int64_t n = targets.classes;
    T* out = dx + row * n;
    if (targets.ignored(row)) {
      g.each(n, [&](int64_t i) { out[i] = T(R(0)); });
      return;
    }
    const T* in = x + row * n;
    const int64_t t = int64_t(targets.target[row]);
    const R m = largest[row], log_s = log_sum[row], up = R(dy[row * dy_step]) / *divisor;
    const R on_target = (R(1) - targets.smoothing) * targets.weight_of(t);
    const R share = targets.smoothing / R(n);
    R total = on_target;
    if (share > R(0)) total += share * g.sum(n, [&](int64_t i) { return targets.weight_of(i); });
    if (targets.weight)
      g.each(n, [&](int64_t i) {
        const R p = math::exp(R(in[i]) - m - log_s);
        out[i] = T(up * (p * total - share * R(targets.weight[i]) - (i == t ? on_target : R(0))));
      });
    else
      g.each(n, [&](int64_t i) {
        const R p = math::exp(R(in[i]) - m - log_s);
        out[i] = T(up * (p * total - share - (i == t ? on_target : R(0))));
      });
  }
};

// Calls body with the Targets<T, Id> of the tensors' dtypes.
template <class Body>
static void with_targets(const Tensor& target, const Tensor& weight,
                         const CrossEntropyOptions& options, const Tensor& logits,
                         const Body& body) {
  dispatch_float(logits.dtype(), "cross_entropy", [&]<class T>() {
    dispatch_index(target.dtype(), "cross_entropy", [&]<class Id>() {
      body(Targets<T, Id>{target.data<Id>(), weight.defined() ? weight.data<T>() : nullptr,
                          logits.size(1), options.ignore_index,
                          Compute<T>(options.label_smoothing)});
    });
  });
}

// The targets, once all is checked.
static Tensor check_targets(const Tensor& logits, const Tensor& target,
                            const CrossEntropyOptions& options) {
  check(logits.rank() == 2, "cross_entropy: logits {} must be [rows, classes]", logits.shape());
  check(target.shape() == Shape{logits.size(0)},
        "cross_entropy: target {} does not fit logits {} (one class per row)", target.shape(),
        logits.shape());
  check_same_device("cross_entropy", logits, target);
  const int64_t classes = logits.size(1);
  check(options.label_smoothing >= 0 && options.label_smoothing <= 1,
        "cross_entropy: label smoothing {} must lie between 0 and 1", options.label_smoothing);
  if (options.weight.defined()) {
    check_alike("cross_entropy", logits, options.weight);
    check(options.weight.shape() == Shape{classes},
          "cross_entropy: class weights {} do not fit logits {}", options.weight.shape(),
          logits.shape());
    check(!grad_enabled() || !options.weight.requires_grad(),
          "cross_entropy: class weights {} get no gradient; pass detach()", options.weight.shape());
  }
  return checked_indices(
      "cross_entropy", target, classes, options.ignore_index, [classes](int64_t c, int64_t row) {
        return fmt::format("cross_entropy: target {} of row {} is outside the {} classes", c, row,
                           classes);
      });
}

Tensor cross_entropy(const Tensor& given_logits, const Tensor& any_target,
                     const CrossEntropyOptions& options) {
  const Tensor logits = to_full_precision(given_logits);
  const Tensor x = logits.contiguous(), target = check_targets(x, any_target, options);
  const Tensor weight = options.weight.defined() ? options.weight.contiguous() : Tensor();
  const int64_t rows = x.size(0), classes = x.size(1);
  const DType computed = compute_dtype(x.dtype());
  const Tensor losses = x.new_empty({rows}, computed), largest = x.new_empty({rows}, computed),
               log_sum = x.new_empty({rows}, computed), divisor = x.new_full({}, 1.0, computed);
  const bool none = options.reduction == Reduction::none;
  Tensor y = none ? Tensor() : x.new_empty({});
  with_targets(target, weight, options, x, [&]<class T, class Id>(const Targets<T, Id>& targets) {
    using R = Compute<T>;
    launch_rows(x.device(), rows, classes,
                CrossEntropyForward<T, Id>{losses.data<R>(), largest.data<R>(), log_sum.data<R>(),
                                           x.data<T>(), targets});
    if (!none)
      launch_rows(x.device(), 1, rows,
                  CrossEntropyReduce<T, Id>{y.data<T>(), divisor.data<R>(), losses.data<R>(), rows,
                                            options.reduction == Reduction::mean, targets});
  });
  if (none) y = convert(losses, x.dtype());
  CrossEntropyOptions kept = options;
  kept.weight = Tensor();  // saved apart, with its version
  return record("cross_entropy", y, {logits, any_target},
                [saved = Saved(x), target = Saved(target), weight = Saved(weight), largest, log_sum,
                 divisor, kept](const Tensor& any_dy) -> Tensors {
                  const Tensor& x = saved.get();
                  const Tensor dy = any_dy.contiguous(), dx = Tensor::empty_like(x);
                  const auto launch = [&]<class T, class Id>(const Targets<T, Id>& targets) {
                    using R = Compute<T>;
                    launch_rows(x.device(), x.size(0), x.size(1),
                                CrossEntropyBackward<T, Id>{dx.data<T>(), dy.data<T>(), x.data<T>(),
                                                            largest.data<R>(), log_sum.data<R>(),
                                                            divisor.data<R>(), dy.rank(), targets});
                  };
                  with_targets(target.get(), weight.get(), kept, x, launch);
                  return {dx, Tensor()};
                });
}

}  // namespace minim
