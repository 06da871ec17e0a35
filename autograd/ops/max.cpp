#include "autograd/ops.h"
#include "core/launch.h"

namespace minim {

// The extreme of the middle dim and its first place; NaN beats everything.   x: [outer, n, inner]
template <class T, bool largest>
struct ExtremeForward {
  T* y;
  int64_t* place;
  const T* x;
  int64_t n, inner;

  HD void operator()(int64_t i) const {
    using R = Compute<T>;
    const T* in = x + i / inner * n * inner + i % inner;
    int64_t at = 0;
    R best(in[0]);
    for (int64_t k = 1; k < n; ++k) {
      const R v(in[k * inner]);
      const bool better = (largest ? v > best : v < best) || (v != v && best == best);
      best = better ? v : best;
      at = better ? k : at;
    }
    y[i] = in[at * inner];
    place[i] = at;
  }
};

// dx [outer, n, inner], zeros before: dy goes to the place of the extreme.
template <class T>
struct ExtremeBackward {
  T* dx;
  const T* dy;
  const int64_t* place;
  int64_t n, inner;

  HD void operator()(int64_t i) const {
    dx[(i / inner * n + place[i]) * inner + i % inner] = dy[i];
  }
};

template <bool largest>
static ValuesIndices extreme(std::string_view op, const Tensor& x, int64_t any_dim, bool keepdim) {
  const int64_t dim = normalize_dim(any_dim, x.shape(), op);
  check(x.size(dim) > 0, "{}: dim {} of shape {} is empty", op, any_dim, x.shape());
  // Not by plan_reduction: the places must lie in [outer, n, inner] of x itself, for the backward.
  const Tensor dense = x.contiguous();
  int64_t inner = 1;
  for (int64_t i = dim + 1; i < x.rank(); ++i)
    inner *= x.size(i);
  const int64_t n = x.size(dim);
  Shape shape = x.shape();
  shape[dim] = 1;
  if (!keepdim) shape.erase(int(dim));
  const Tensor y = x.new_empty(shape), places = x.new_empty(shape, DType::i64);
  dispatch_float(x.dtype(), op, [&]<class T>() {
    launch_elements(
        x.device(), y.numel(),
        ExtremeForward<T, largest>{y.data<T>(), places.data<int64_t>(), dense.data<T>(), n, inner});
  });
  const Tensor values =
      record(op, y, {x},
             [places = Saved(places), full = x.shape(), n, inner](const Tensor& any_dy) -> Tensors {
               const Tensor dy = any_dy.contiguous(), dx = dy.new_zeros(full, dy.dtype());
               dispatch_float(dy.dtype(), "max", [&]<class T>() {
                 launch_elements(dy.device(), dy.numel(),
                                 ExtremeBackward<T>{dx.data<T>(), dy.data<T>(),
                                                    places.get().data<int64_t>(), n, inner});
               });
               return {dx};
             });
  return {values, places};
}

ValuesIndices max(const Tensor& x, int64_t dim, bool keepdim) {
  return extreme<true>("max", x, dim, keepdim);
}

ValuesIndices min(const Tensor& x, int64_t dim, bool keepdim) {
  return extreme<false>("min", x, dim, keepdim);
}

Tensor argmax(const Tensor& x, int64_t dim, bool keepdim) {
  return record_without_backward("argmax",
                                 extreme<true>("argmax", x.detach(), dim, keepdim).indices, {x});
}

}  // namespace minim
