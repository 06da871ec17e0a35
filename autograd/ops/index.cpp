#include <string>
#include <string_view>

#include "autograd/ops.h"
#include "autograd/ops/add_rows.h"
#include "autograd/ops/checked_indices.h"
#include "autograd/ops/checks.h"
#include "core/launch.h"

namespace minim {

// The indices, each in [0, extent) of the dim.
static Tensor check_indices(std::string_view op, const Tensor& index, int64_t dim,
                            const Shape& shape) {
  return checked_indices(
      op, index, shape[dim], {}, [op = std::string(op), dim, shape](int64_t value, int64_t place) {
        return fmt::format(
            "{}: index {} at position {} is out of range for dim {} of shape {} (extent {})", op,
            value, place, dim, shape, shape[dim]);
      });
}

// --- gather ---

// y = x at the place along dim that index names; x is seen with index's shape and standing still
// along dim.
template <class T, class Id>
struct GatherForward {
  T* y;
  const T* x;
  const Id* index;
  int64_t step;

  HD void operator()(const Offsets<3>& at) const {
    y[at[0]] = x[at[2] + int64_t(index[at[1]]) * step];
  }
};

// Adds the n elements of one line along dim to dx, in order; lines do not meet.
template <class T, class Id>
struct GatherBackward {
  Compute<T>* dx;
  const T* dy;
  const Id* index;
  int64_t n, dx_step, dy_step, index_step;

  HD void operator()(const Offsets<3>& at) const {
    for (int64_t i = 0; i < n; ++i)
      dx[at[0] + int64_t(index[at[2] + i * index_step]) * dx_step] +=
          Compute<T>(dy[at[1] + i * dy_step]);
  }
};

Tensor gather(const Tensor& x, int64_t any_dim, const Tensor& any_index) {
  check_floating("gather", x);
  check_same_device("gather", x, any_index);
  const int dim = normalize_dim(any_dim, x.shape(), "gather");
  bool fits = any_index.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i)
    fits = i == dim || any_index.size(i) <= x.size(i);
  check(fits, "gather: index {} does not fit {} (same rank, no larger except along dim {})",
        any_index.shape(), x.shape(), any_dim);
  const Tensor index = check_indices("gather", any_index, dim, x.shape());
  const Tensor y = x.new_empty(index.shape());
  Shape still = x.strides();
  still[dim] = 0;
  const Tensor seen = x.view(index.shape(), still);
  const BroadcastPlan<3> plan(index.shape(), {&y, &index, &seen});
  dispatch_float(x.dtype(), "gather", [&]<class T>() {
    dispatch_index(index.dtype(), "gather", [&]<class Id>() {
      launch_broadcast(
          x.device(), plan,
          GatherForward<T, Id>{y.data<T>(), x.data<T>(), index.data<Id>(), x.strides()[dim]});
    });
  });
  return record("gather", y, {x, any_index},
                [saved = Saved(index), shape = x.shape(), dim](const Tensor& dy) -> Tensors {
                  const Tensor& index = saved.get();
                  const Tensor dx = dy.new_zeros(shape, compute_dtype(dy.dtype()));
                  Shape lines = index.shape();
                  lines[dim] = 1;
                  const Tensor to = dx.view(lines, dx.strides()),
                               from = dy.view(lines, dy.strides()),
                               places = index.view(lines, index.strides());
                  const BroadcastPlan<3> plan(lines, {&to, &from, &places});
                  dispatch_float(dy.dtype(), "gather", [&]<class T>() {
                    dispatch_index(index.dtype(), "gather", [&]<class Id>() {
                      launch_broadcast(dy.device(), plan,
                                       GatherBackward<T, Id>{dx.data<Compute<T>>(), dy.data<T>(),
                                                             index.data<Id>(), index.size(dim),
                                                             dx.strides()[dim], dy.strides()[dim],
                                                             index.strides()[dim]});
                    });
                  });
                  return {convert(dx, dy.dtype()), Tensor()};
                });
}

// --- index_select ---

// y[.., i, ..] = x[.., index[i], ..], one run of inner elements at a time.
// x: [outer, extent, inner], y: [outer, n, inner]
template <class T, class Id>
struct IndexSelectForward {
  T* y;
  const T* x;
  const Id* index;
  int64_t extent, n, inner;

  template <class Group>
  HD void operator()(const Group& g, int64_t run) const {
    const T* from = x + (run / n * extent + int64_t(index[run % n])) * inner;
    T* to = y + run * inner;
    g.each(inner, [&](int64_t i) { to[i] = from[i]; });
  }
};

// Adds dy to a block of columns of dx, place by place: the order of the sums is fixed.
template <class T, class Id>
struct IndexSelectBackward {
  static constexpr int64_t block = 64;
  Compute<T>* dx;
  const T* dy;
  const Id* index;
  int64_t extent, n, inner, blocks;

  template <class Group>
  HD void operator()(const Group& g, int64_t task) const {
    const int64_t outer = task / blocks, first = task % blocks * block;
    const int64_t width = first + block < inner ? block : inner - first;
    for (int64_t k = 0; k < n; ++k) {
      Compute<T>* to = dx + (outer * extent + int64_t(index[k])) * inner + first;
      const T* from = dy + (outer * n + k) * inner + first;
      g.each(width, [&](int64_t i) { to[i] += Compute<T>(from[i]); });
    }
  }
};

Tensor index_select(const Tensor& any_x, int64_t any_dim, const Tensor& any_index) {
  check_floating("index_select", any_x);
  check_same_device("index_select", any_x, any_index);
  const int dim = normalize_dim(any_dim, any_x.shape(), "index_select");
  check(any_index.rank() == 1, "index_select: index {} must have one dim", any_index.shape());
  const Tensor index = check_indices("index_select", any_index, dim, any_x.shape());
  const Tensor x = any_x.contiguous();
  const int64_t extent = x.size(dim), n = index.numel();
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < x.rank(); ++i)
    if (i != dim) (i < dim ? outer : inner) *= x.size(i);
  Shape shape = x.shape();
  shape[dim] = n;
  const Tensor y = x.new_empty(shape);
  dispatch_float(x.dtype(), "index_select", [&]<class T>() {
    dispatch_index(index.dtype(), "index_select", [&]<class Id>() {
      launch_rows(
          x.device(), outer * n, inner,
          IndexSelectForward<T, Id>{y.data<T>(), x.data<T>(), index.data<Id>(), extent, n, inner});
    });
  });
  return record("index_select", y, {any_x, any_index},
                [index = Saved(index), full = x.shape(), extent, n, outer,
                 inner](const Tensor& any_dy) -> Tensors {
                  const Tensor dy = any_dy.contiguous();
                  const Tensor dx = dy.new_zeros(full, compute_dtype(dy.dtype()));
                  if (outer == 1) {
                    add_rows(dx.view({extent, inner}, {inner, 1}), dy, index.get());
                    return {convert(dx, dy.dtype()), Tensor()};
                  }
                  dispatch_float(dy.dtype(), "index_select", [&]<class T>() {
                    dispatch_index(index.get().dtype(), "index_select", [&]<class Id>() {
                      using Kernel = IndexSelectBackward<T, Id>;
                      const int64_t blocks = (inner + Kernel::block - 1) / Kernel::block;
                      launch_rows(dy.device(), outer * blocks, n * std::min(inner, Kernel::block),
                                  Kernel{dx.data<Compute<T>>(), dy.data<T>(),
                                         index.get().data<Id>(), extent, n, inner, blocks});
                    });
                  });
                  return {convert(dx, dy.dtype()), Tensor()};
                });
}

}  // namespace minim
