#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "autograd/ops/checks.h"
#include "core/launch.h"
#include "core/math.h"

// Operations along one dimension. Their kernels work on rows, so another dimension than the last is
// moved there and back by recorded transposes, which cost nothing for the last.
namespace minim {

// y = exp(x - largest) / (sum of exp(x - largest)).   x, y: [rows, n]
template <class T>
struct SoftmaxForward {
  T* y;
  const T* x;
  int64_t n;

  template <class Group>
  HD void operator()(const Group& g, int64_t row) const {
    using R = Compute<T>;
    const T* in = x + row * n;
    T* out = y + row * n;
    const R m = g.max(n, [&](int64_t i) { return R(in[i]); });
    const R scale = R(1) / g.sum(n, [&](int64_t i) { return math::exp(R(in[i]) - m); });
    g.each(n, [&](int64_t i) { out[i] = T(math::exp(R(in[i]) - m) * scale); });
  }
};

// dx = y (dy - sum of dy y)
template <class T>
struct SoftmaxBackward {
  T* dx;
  const T *dy, *y;
  int64_t n;

  template <class Group>
  HD void operator()(const Group& g, int64_t row) const {
    using R = Compute<T>;
    const T *up = dy + row * n, *p = y + row * n;
    T* out = dx + row * n;
    const R dot = g.sum(n, [&](int64_t i) { return R(up[i]) * R(p[i]); });
    g.each(n, [&](int64_t i) { out[i] = T(R(p[i]) * (R(up[i]) - dot)); });
  }
};

Tensor softmax_gradient(const Tensor& y, const Tensor& any_dy) {
  const Tensor dy = any_dy.contiguous(), dx = Tensor::empty_like(dy);
  const int64_t n = y.size(-1), rows = n > 0 ? y.numel() / n : 0;
  dispatch_float(dy.dtype(), "softmax", [&]<class T>() {
    launch_rows(dy.device(), rows, n,
                SoftmaxBackward<T>{dx.data<T>(), dy.data<T>(), y.data<T>(), n});
  });
  return dx;
}

Tensor softmax(const Tensor& given_x, int64_t any_dim) {
  const Tensor any_x = to_full_precision(given_x);
  const int dim = normalize_dim(any_dim, any_x.shape(), "softmax");
  if (dim + 1 < any_x.rank()) return transpose(softmax(transpose(any_x, dim, -1)), dim, -1);
  const Tensor x = any_x.contiguous(), y = Tensor::empty_like(x);
  const int64_t n = x.size(-1), rows = n > 0 ? x.numel() / n : 0;
  dispatch_float(x.dtype(), "softmax", [&]<class T>() {
    launch_rows(x.device(), rows, n, SoftmaxForward<T>{y.data<T>(), x.data<T>(), n});
  });
  return record("softmax", y, {any_x}, [y = Saved(y)](const Tensor& dy) -> Tensors {
    return {softmax_gradient(y.get(), dy)};
  });
}

// y = x - largest - log(sum of exp(x - largest)).   x, y: [rows, n]
template <class T>
struct LogSoftmaxForward {
  T* y;
  const T* x;
  int64_t n;

  template <class Group>
  HD void operator()(const Group& g, int64_t row) const {
    using R = Compute<T>;
    const T* in = x + row * n;
    T* out = y + row * n;
    const R m = g.max(n, [&](int64_t i) { return R(in[i]); });
    const R log_sum = math::log(g.sum(n, [&](int64_t i) { return math::exp(R(in[i]) - m); }));
    g.each(n, [&](int64_t i) { out[i] = T(R(in[i]) - m - log_sum); });
  }
};

// dx = dy - exp(y) (sum of dy)
template <class T>
struct LogSoftmaxBackward {
  T* dx;
  const T *dy, *y;
  int64_t n;

  template <class Group>
  HD void operator()(const Group& g, int64_t row) const {
    using R = Compute<T>;
    const T *up = dy + row * n, *log_p = y + row * n;
    T* out = dx + row * n;
    const R total = g.sum(n, [&](int64_t i) { return R(up[i]); });
    g.each(n, [&](int64_t i) { out[i] = T(R(up[i]) - math::exp(R(log_p[i])) * total); });
  }
};

Tensor log_softmax(const Tensor& given_x, int64_t any_dim) {
  const Tensor any_x = to_full_precision(given_x);
  const int dim = normalize_dim(any_dim, any_x.shape(), "log_softmax");
  if (dim + 1 < any_x.rank()) return transpose(log_softmax(transpose(any_x, dim, -1)), dim, -1);
  const Tensor x = any_x.contiguous(), y = Tensor::empty_like(x);
  const int64_t n = x.size(-1), rows = n > 0 ? x.numel() / n : 0;
  dispatch_float(x.dtype(), "log_softmax", [&]<class T>() {
    launch_rows(x.device(), rows, n, LogSoftmaxForward<T>{y.data<T>(), x.data<T>(), n});
  });
  return record(
      "log_softmax", y, {any_x}, [y = Saved(y), rows, n](const Tensor& any_dy) -> Tensors {
        const Tensor dy = any_dy.contiguous(), dx = Tensor::empty_like(dy);
        dispatch_float(dy.dtype(), "log_softmax", [&]<class T>() {
          launch_rows(dy.device(), rows, n,
                      LogSoftmaxBackward<T>{dx.data<T>(), dy.data<T>(), y.get().data<T>(), n});
        });
        return {dx};
      });
}

// y = m + log(sum of exp(x - m)), m the largest, or 0 where that is infinite.   x: [rows, n], y:
// [rows]
template <class T>
struct LogsumexpForward {
  T* y;
  const T* x;
  int64_t n;

  template <class Group>
  HD void operator()(const Group& g, int64_t row) const {
    using R = Compute<T>;
    constexpr R infinity = std::numeric_limits<R>::infinity();
    const T* in = x + row * n;
    const R largest = g.max(n, [&](int64_t i) { return R(in[i]); });
    const R m = largest == infinity || largest == -infinity ? R(0) : largest;
    const R total = g.sum(n, [&](int64_t i) { return math::exp(R(in[i]) - m); });
    if (g.leader()) y[row] = T(m + math::log(total));
  }
};

// dx = dy exp(x - y)
template <class T>
struct LogsumexpBackward {
  T* dx;
  const T *dy, *x, *y;
  int64_t n;

  template <class Group>
  HD void operator()(const Group& g, int64_t row) const {
    using R = Compute<T>;
    const R up(dy[row]), total(y[row]);
    const T* in = x + row * n;
    T* out = dx + row * n;
    g.each(n, [&](int64_t i) { out[i] = T(up * math::exp(R(in[i]) - total)); });
  }
};

Tensor logsumexp(const Tensor& given_x, int64_t any_dim, bool keepdim) {
  const Tensor any_x = to_full_precision(given_x);
  const int64_t dim = normalize_dim(any_dim, any_x.shape(), "logsumexp");
  const Tensor moved = transpose(any_x, dim, -1);
  const Tensor x = moved.contiguous();
  const int64_t n = x.size(-1);
  Shape rows = x.shape();
  rows.back() = 1;
  const Tensor y = x.new_empty(rows);
  dispatch_float(x.dtype(), "logsumexp", [&]<class T>() {
    launch_rows(x.device(), y.numel(), n, LogsumexpForward<T>{y.data<T>(), x.data<T>(), n});
  });
  const Tensor result = record(
      "logsumexp", y, {moved}, [x = Saved(x), y = Saved(y), n](const Tensor& any_dy) -> Tensors {
        const Tensor dy = any_dy.contiguous(), dx = Tensor::empty_like(x.get());
        dispatch_float(dy.dtype(), "logsumexp", [&]<class T>() {
          launch_rows(dy.device(), dy.numel(), n,
                      LogsumexpBackward<T>{dx.data<T>(), dy.data<T>(), x.get().data<T>(),
                                           y.get().data<T>(), n});
        });
        return {dx};
      });
  const Tensor back = transpose(result, dim, -1);
  return keepdim ? back : squeeze(back, dim);
}

}  // namespace minim
