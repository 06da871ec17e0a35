#include <utility>

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

// dweight and dbias of a block of columns, summed over a part of the rows in order.
// dy, x: [rows, n]; dweight, dbias: [parts, n]
template <class T>
struct LayerNormWeightBackward {
  static constexpr int block = 64;
  Compute<T>*dweight, *dbias;
  const T *dy, *x;
  const Compute<T>*mean, *rstd;
  int64_t rows, n, height, blocks;  // rows of a part, blocks of columns

  template <class Group>
  HD void operator()(const Group& g, int64_t index) const {
    using R = Compute<T>;
    const int64_t part = index / blocks, first = index % blocks * block;
    const int64_t width = first + block < n ? block : n - first;
    const int64_t begin = part * height, end = begin + height < rows ? begin + height : rows;
    R dw[Group::template own<block>], db[Group::template own<block>];
    g.template each_own<block>(width, [&](int64_t, int64_t k) { dw[k] = db[k] = R(0); });
    for (int64_t row = begin; row < end; ++row) {
      const T *in = x + row * n + first, *up = dy + row * n + first;
      const R m = mean[row], r = rstd[row];
      g.template each_own<block>(width, [&](int64_t i, int64_t k) {
        dw[k] += R(up[i]) * (R(in[i]) - m) * r;
        db[k] += R(up[i]);
      });
    }
    R *to_weight = dweight + part * n + first, *to_bias = dbias + part * n + first;
    g.template each_own<block>(width, [&](int64_t i, int64_t k) {
      to_weight[i] = dw[k];
      to_bias[i] = db[k];
    });
  }
};

// Adds up the parts of a column of dweight, or of dbias: columns n to 2 n.
template <class T>
struct LayerNormWeightSum {
  T *dweight, *dbias;
  const Compute<T>*weight_parts, *bias_parts;  // [parts, n]
  int64_t parts, n;

  template <class Group>
  HD void operator()(const Group& g, int64_t column) const {
    using R = Compute<T>;
    const bool of_bias = column >= n;
    const int64_t place = of_bias ? column - n : column;
    const R* from = (of_bias ? bias_parts : weight_parts) + place;
    const R total = g.sum(parts, [&](int64_t part) { return from[part * n]; });
    if (g.leader()) (of_bias ? dbias : dweight)[place] = T(total);
  }
};

// dweight and dbias. A device has work for all its processors only if it takes parts of the rows
// side by side; they are as high whatever the number of rows, so that rows of zeros at the end,
// which fill up a batch, change no bit.
template <class T>
static std::pair<Tensor, Tensor> weight_gradients(const Tensor& dy, const Tensor& x,
                                                  const Tensor& mean, const Tensor& rstd,
                                                  int64_t rows, int64_t n) {
  using R = Compute<T>;
  using Parts = LayerNormWeightBackward<T>;
  constexpr int64_t height_on_device = 32;
  const Device device = dy.device();
  const int64_t height = device.is_cpu() ? rows : height_on_device;
  const int64_t parts = rows > height ? (rows + height - 1) / height : 1;
  const int64_t blocks = (n + Parts::block - 1) / Parts::block;
  const Tensor weight_parts = dy.new_empty({parts, n}, dtype_of<R>);
  const Tensor bias_parts = dy.new_empty({parts, n}, dtype_of<R>);
  // A warp of a device is enough for a block of columns.
  launch_rows(device, parts * blocks, device.is_cpu() ? height * Parts::block : Parts::block,
              Parts{weight_parts.data<R>(), bias_parts.data<R>(), dy.data<T>(), x.data<T>(),
                    mean.data<R>(), rstd.data<R>(), rows, n, height, blocks});
  if (parts == 1)
    return {convert(weight_parts.view({n}, {1}), dy.dtype()),
            convert(bias_parts.view({n}, {1}), dy.dtype())};
  const Tensor dweight = dy.new_empty({n}), dbias = dy.new_empty({n});
  launch_rows(device, 2 * n, 1,  // by warps, whatever the number of parts
              LayerNormWeightSum<T>{dweight.data<T>(), dbias.data<T>(), weight_parts.data<R>(),
                                    bias_parts.data<R>(), parts, n});
  return {dweight, dbias};
}

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
  return record("layer_norm", y, {any_x, weight, bias},
                [x = Saved(x), w = Saved(w), mean, rstd, rows, n](const Tensor& any_dy) -> Tensors {
                  const Tensor dy = any_dy.contiguous(), dx = Tensor::empty_like(dy);
                  std::pair<Tensor, Tensor> weights;
                  dispatch_float(dy.dtype(), "layer_norm", [&]<class T>() {
                    using R = Compute<T>;
                    launch_rows(
                        dy.device(), rows, n,
                        LayerNormBackward<T>{dx.data<T>(), dy.data<T>(), x.get().data<T>(),
                                             w.get().data<T>(), mean.data<R>(), rstd.data<R>(), n});
                    weights = weight_gradients<T>(dy, x.get(), mean, rstd, rows, n);
                  });
                  return {dx, weights.first, weights.second};
                });
}

}  // namespace minim
