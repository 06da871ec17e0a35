#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "core/launch.h"

namespace minim {

namespace {

// A reduction seen as one over the middle of [outer, n, inner].
struct ReducedView {
  Tensor x;     // contiguous, in the order of the three
  Shape kept;   // the input's shape with reduced extents of 1
  Shape shape;  // the result's
  int64_t outer = 1, n = 1, inner = 1;
};

ReducedView plan_reduction(std::string_view op, const Tensor& x, const Dims& dims, bool keepdim) {
  bool reduced[Shape::max_rank] = {};
  for (const int64_t any_dim : dims) {
    const int dim = normalize_dim(any_dim, x.shape(), op);
    check(!reduced[dim], "{}: dim {} of shape {} is named twice", op, any_dim, x.shape());
    reduced[dim] = true;
  }
  if (dims.empty()) std::fill_n(reduced, x.rank(), true);

  ReducedView r;
  Shape order_shape, order_strides;  // the kept dims, then the reduced ones
  bool before = true, after = false, block = true;
  for (int i = 0; i < x.rank(); ++i) {
    const int64_t extent = x.shape()[i];
    r.kept.push_back(reduced[i] ? 1 : extent);
    if (!reduced[i] || keepdim) r.shape.push_back(r.kept.back());
    if (reduced[i]) {
      block = block && (!after || extent == 1);
      r.n *= extent;
      before = before && extent == 1;
    } else {
      (before ? r.outer : r.inner) *= extent;
      after = after || (!before && extent != 1);
      order_shape.push_back(extent);
      order_strides.push_back(x.strides()[i]);
    }
  }
  if (block && x.is_contiguous()) {
    r.x = x;
    return r;
  }
  for (int i = 0; i < x.rank(); ++i) {
    if (!reduced[i]) continue;
    order_shape.push_back(x.shape()[i]);
    order_strides.push_back(x.strides()[i]);
  }
  r.x = x.view(order_shape, order_strides).contiguous();
  r.outer *= r.inner;
  r.inner = 1;
  return r;
}

// dy of a reduction, repeated along the reduced dims without copying.
Tensor repeat_along(const Tensor& dy, const Shape& kept, const Shape& shape) {
  return expand(reshape(dy, kept), shape);
}

}  // namespace

// Long sums are cut into parts of fixed length, which are summed in turn: threads share the work,
// their number changes no bit, and less is lost to rounding.

// y = (sum of x) / divisor, for parts of rows.   x: [rows, n], y: [rows, parts]
template <class To, class From>
struct SumRows {
  static constexpr int64_t part_size = 16384;
  To* y;
  const From* x;
  int64_t n, parts;
  Compute<To> divisor;

  template <class Group>
  HD void operator()(const Group& g, int64_t index) const {
    using R = Compute<To>;
    const int64_t first = index % parts * part_size;
    const int64_t length = first + part_size < n ? part_size : n - first;
    const From* in = x + index / parts * n + first;
    const R total = g.sum(length, [&](int64_t i) { return R(in[i]); });
    if (g.leader()) y[index] = To(total / divisor);
  }
};

// The same for a block of columns.   x: [outer, n, inner], y: [outer, parts, inner]
template <class To, class From>
struct SumColumns {
  static constexpr int64_t part_size = 256, block = 64;
  To* y;
  const From* x;
  int64_t n, parts, inner, blocks;
  Compute<To> divisor;

  template <class Group>
  HD void operator()(const Group& g, int64_t index) const {
    using R = Compute<To>;
    const int64_t first = index % blocks * block;
    const int64_t width = first + block < inner ? block : inner - first;
    const int64_t to = index / blocks;
    const int64_t begin = to % parts * part_size;
    const int64_t end = begin + part_size < n ? begin + part_size : n;
    const From* in = x + to / parts * n * inner + first;
    R total[block];
    g.each(width, [&](int64_t i) { total[i] = R(0); });
    for (int64_t row = begin; row < end; ++row) {
      const From* line = in + row * inner;
      g.each(width, [&](int64_t i) { total[i] += R(line[i]); });
    }
    To* out = y + to * inner + first;
    g.each(width, [&](int64_t i) { out[i] = To(total[i] / divisor); });
  }
};

// Sums parts of `x` [outer, n, inner] into `y` [outer, parts, inner].
template <class To, class From>
void launch_sum(const Tensor& y, const Tensor& x, int64_t outer, int64_t n, int64_t inner,
                int64_t parts, double divisor) {
  using Rows = SumRows<To, From>;
  using Columns = SumColumns<To, From>;
  const Compute<To> by(divisor);
  if (inner == 1) {
    launch_rows(x.device(), outer * parts, std::min(n, Rows::part_size),
                Rows{y.data<To>(), x.data<From>(), n, parts, by});
  } else {
    const int64_t blocks = (inner + Columns::block - 1) / Columns::block;
    launch_rows(x.device(), outer * parts * blocks,
                std::min(n, Columns::part_size) * std::min(inner, Columns::block),
                Columns{y.data<To>(), x.data<From>(), n, parts, inner, blocks, by});
  }
}

static Tensor sum_and_divide(std::string_view op, const ReducedView& r, double divisor) {
  const Tensor y = r.x.new_empty(r.shape);
  dispatch_float(r.x.dtype(), op, [&]<class T>() {
    using R = Compute<T>;
    const auto parts_of = [&r](int64_t n) {
      const int64_t size = r.inner == 1 ? SumRows<T, T>::part_size : SumColumns<T, T>::part_size;
      return std::max<int64_t>(1, (n + size - 1) / size);
    };
    int64_t n = r.n, parts = parts_of(n);
    if (parts == 1) {
      launch_sum<T, T>(y, r.x, r.outer, n, r.inner, 1, divisor);
      return;
    }
    Tensor partial = r.x.new_empty({r.outer * parts * r.inner}, dtype_of<R>);
    launch_sum<R, T>(partial, r.x, r.outer, n, r.inner, parts, 1.0);
    for (n = parts; (parts = parts_of(n)) > 1; n = parts) {
      const Tensor shorter = r.x.new_empty({r.outer * parts * r.inner}, dtype_of<R>);
      launch_sum<R, R>(shorter, partial, r.outer, n, r.inner, parts, 1.0);
      partial = shorter;
    }
    launch_sum<T, R>(y, partial, r.outer, n, r.inner, 1, divisor);
  });
  return y;
}

Tensor sum(const Tensor& given_x, const Dims& dims, bool keepdim) {
  const Tensor x = to_full_precision(given_x);
  const ReducedView r = plan_reduction("sum", x, dims, keepdim);
  return record("sum", sum_and_divide("sum", r, 1.0), {x},
                [kept = r.kept, shape = x.shape()](const Tensor& dy) -> Tensors {
                  return {repeat_along(dy, kept, shape)};
                });
}

Tensor mean(const Tensor& x, const Dims& dims, bool keepdim) {
  const ReducedView r = plan_reduction("mean", x, dims, keepdim);
  return record("mean", sum_and_divide("mean", r, double(r.n)), {x},
                [kept = r.kept, shape = x.shape(), n = r.n](const Tensor& dy) -> Tensors {
                  return {repeat_along(affine(dy, 1.0 / double(n), 0.0), kept, shape)};
                });
}

}  // namespace minim
