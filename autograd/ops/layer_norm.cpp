#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "autograd/ops/checks.h"
#include "core/launch.h"

namespace minim {

// y = (x - mean) * rstd * weight + bias for each row.   x, y: [rows, n]; mean, rstd: [rows]
template <class T>
struct LayerNormForward {
  T* y;
  Compute<T>*mean, *rstd;
  const T *x, *weight, *bias;
  int64_t n;
  Compute<T> eps;

  template <class Group>
  HD void operator()(const Group& g, int64_t row) const {
    using R = Compute<T>;
    const T* in = x + row * n;
    T* out = y + row * n;
    const R m = g.sum(n, [&](int64_t i) { return R(in[i]); }) / R(n);
    const R variance = g.sum(n, [&](int64_t i) { return (R(in[i]) - m) * (R(in[i]) - m); }) / R(n);
    const R r = R(1) / math::sqrt(variance + eps);
    g.each(n, [&](int64_t i) { out[i] = T((R(in[i]) - m) * r * R(weight[i]) + R(bias[i])); });
    if (g.leader()) {
      mean[row] = m;
      rstd[row] = r;
    }
  }
};

// With xhat = (x - mean) * rstd and d = dy * weight:
// dx = rstd * (d - average(d) - xhat * average(d * xhat)).
template <class T>
struct LayerNormBackward {
  T* dx;
  const T *dy, *x, *weight;
  const Compute<T>*mean, *rstd;
  int64_t n;

  template <class Group>
  HD void operator()(const Group& g, int64_t row) const {
    using R = Compute<T>;
    const T *in = x + row * n, *up = dy + row * n;
    T* out = dx + row * n;
    const R m = mean[row], r = rstd[row];
    const R a = g.sum(n, [&](int64_t i) { return R(up[i]) * R(weight[i]); }) / R(n);
    const R b =
        g.sum(n, [&](int64_t i) { return R(up[i]) * R(weight[i]) * (R(in[i]) - m) * r; }) / R(n);
    g.each(n, [&](int64_t i) {
      out[i] = T(r * (R(up[i]) * R(weight[i]) - a - (R(in[i]) - m) * r * b));
    });
  }
};

// dweight and dbias of a block of columns, summed over all rows in order.
template <class T>
struct LayerNormWeightBackward {
  static constexpr int64_t block = 64;
  T *dweight, *dbias;
  const T *dy, *x;
  const Compute<T>*mean, *rstd;
  int64_t rows, n;

  template <class Group>
  HD void operator()(const Group& g, int64_t index) const {
    using R = Compute<T>;
    const int64_t first = index * block;
    const int64_t width = first + block < n ? block : n - first;
    R dw[block], db[block];
    g.each(width, [&](int64_t i) { dw[i] = db[i] = R(0); });
    for (int64_t row = 0; row < rows; ++row) {
      const T *in = x + row * n + first, *up = dy + row * n + first;
      const R m = mean[row], r = rstd[row];
      g.each(width, [&](int64_t i) {
        dw[i] += R(up[i]) * (R(in[i]) - m) * r;
        db[i] += R(up[i]);
      });
    }
    g.each(width, [&](int64_t i) {
      dweight[first + i] = T(dw[i]);
      dbias[first + i] = T(db[i]);
    });
  }
};

Tensor layer_norm(const Tensor& given_x, const Tensor& given_weight, const Tensor& given_bias,
                  double eps) {
  const Tensor any_x = to_full_precision(given_x);
  const Tensor weight = to_full_precision(given_weight), bias = to_full_precision(given_bias);
  check(any_x.rank() >= 1 && weight.shape() == Shape{any_x.size(-1)},
        "layer_norm: input {} does not fit weight {} (last dim must be the weight's)",
        any_x.shape(), weight.shape());
  check(bias.shape() == weight.shape(), "layer_norm: bias {} does not fit weight {}", bias.shape(),
        weight.shape());
  check_alike("layer_norm", any_x, weight);
  check_alike("layer_norm", any_x, bias);
  const Tensor x = any_x.contiguous(), w = weight.contiguous(), b = bias.contiguous();
  const int64_t n = w.numel(), rows = n > 0 ? x.numel() / n : 0;
  const Tensor y = Tensor::empty_like(x);
  const Tensor mean = x.new_empty({rows}, compute_dtype(x.dtype()));
  const Tensor rstd = x.new_empty({rows}, compute_dtype(x.dtype()));
  dispatch_float(x.dtype(), "layer_norm", [&]<class T>() {
    using R = Compute<T>;
    launch_rows(x.device(), rows, n,
                LayerNormForward<T>{y.data<T>(), mean.data<R>(), rstd.data<R>(), x.data<T>(),
                                    w.data<T>(), b.data<T>(), n, R(eps)});
  });
  return record(
      "layer_norm", y, {any_x, weight, bias},
      [x = Saved(x), w = Saved(w), mean, rstd, rows, n](const Tensor& any_dy) -> Tensors {
        const Tensor dy = any_dy.contiguous(), dx = Tensor::empty_like(dy);
        const Tensor dweight = dy.new_empty({n});
        const Tensor dbias = dy.new_empty({n});
        dispatch_float(dy.dtype(), "layer_norm", [&]<class T>() {
          using R = Compute<T>;
          launch_rows(dy.device(), rows, n,
                      LayerNormBackward<T>{dx.data<T>(), dy.data<T>(), x.get().data<T>(),
                                           w.get().data<T>(), mean.data<R>(), rstd.data<R>(), n});
          using Weights = LayerNormWeightBackward<T>;
          launch_rows(dy.device(), (n + Weights::block - 1) / Weights::block, rows * Weights::block,
                      Weights{dweight.data<T>(), dbias.data<T>(), dy.data<T>(), x.get().data<T>(),
                              mean.data<R>(), rstd.data<R>(), rows, n});
        });
        return {dx, dweight, dbias};
      });
}

}  // namespace minim
