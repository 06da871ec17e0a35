#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "core/launch.h"
#include "core/math.h"

namespace minim {

// Sums of squares of parts of x [n], in f64.
template <class T>
struct SumOfSquares {
  static constexpr int64_t part_size = 16384;
  double* partial;
  const T* x;
  int64_t n;

  template <class Group>
  HD void operator()(const Group& g, int64_t part) const {
    const int64_t first = part * part_size;
    const T* in = x + first;
    const double total = g.sum(first + part_size < n ? part_size : n - first, [&](int64_t i) {
      const double v = double(Compute<T>(in[i]));
      return v * v;
    });
    if (g.leader()) partial[part] = total;
  }
};

// The root of the sum of the parts; `exact` is kept for the backward.
template <class T>
struct NormForward {
  T* y;
  double* exact;
  const double* partial;
  int64_t parts;

  template <class Group>
  HD void operator()(const Group& g, int64_t) const {
    const double root = math::sqrt(g.sum(parts, [&](int64_t i) { return partial[i]; }));
    if (g.leader()) {
      *exact = root;
      *y = T(Compute<T>(root));
    }
  }
};

// dx = dy x / y, and 0 at the origin.
template <class T>
struct NormBackward {
  T* dx;
  const T *dy, *x;
  const double* exact;

  HD void operator()(int64_t i) const {
    using R = Compute<T>;
    const double y = *exact;
    dx[i] = T(y == 0 ? R(0) : R(double(R(*dy)) * (double(R(x[i])) / y)));
  }
};

Tensor norm(const Tensor& given_x) {
  const Tensor any_x = to_full_precision(given_x);
  const Tensor x = any_x.contiguous();
  const Tensor y = x.new_empty({}), exact = x.new_empty({}, DType::f64);
  dispatch_float(x.dtype(), "norm", [&]<class T>() {
    constexpr int64_t size = SumOfSquares<T>::part_size;
    const int64_t n = x.numel(), parts = (n + size - 1) / size;
    const Tensor partial = x.new_empty({parts}, DType::f64);
    launch_rows(x.device(), parts, size, SumOfSquares<T>{partial.data<double>(), x.data<T>(), n});
    launch_rows(x.device(), 1, parts,
                NormForward<T>{y.data<T>(), exact.data<double>(), partial.data<double>(), parts});
  });
  return record("norm", y, {any_x}, [x = Saved(x), exact](const Tensor& dy) -> Tensors {
    const Tensor dx = Tensor::empty_like(x.get());
    dispatch_float(dy.dtype(), "norm", [&]<class T>() {
      launch_elements(
          dy.device(), dx.numel(),
          NormBackward<T>{dx.data<T>(), dy.data<T>(), x.get().data<T>(), exact.data<double>()});
    });
    return {dx};
  });
}

}  // namespace minim
