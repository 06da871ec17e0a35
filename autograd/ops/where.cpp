#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "autograd/ops/checks.h"
#include "core/launch.h"

namespace minim {

template <class T>
struct WhereKernel {
  T* y;
  const bool* condition;
  const T *a, *b;
  HD void operator()(const Offsets<4>& at) const {
    y[at[0]] = condition[at[1]] ? a[at[2]] : b[at[3]];
  }
};

// y = value where the mask equals `filled`, else x.
template <class T>
struct FillWhereKernel {
  T* y;
  const bool* mask;
  const T* x;
  T value;
  bool filled;
  HD void operator()(const Offsets<3>& at) const {
    y[at[0]] = mask[at[1]] == filled ? value : x[at[2]];
  }
};

// The mask broadcasts to x.
static Tensor fill_where(const Tensor& mask, bool filled, double value, const Tensor& x) {
  const Tensor y = Tensor::empty_like(x);
  const BroadcastPlan<3> plan(x.shape(), {&y, &mask, &x});
  dispatch_float(x.dtype(), "masked_fill", [&]<class T>() {
    launch_broadcast(x.device(), plan,
                     FillWhereKernel<T>{y.data<T>(), mask.data<bool>(), x.data<T>(),
                                        T(Compute<T>(value)), filled});
  });
  return y;
}

Tensor where(const Tensor& condition, const Tensor& given_a, const Tensor& given_b) {
  const Tensor a = to_common_dtype(given_a, given_b), b = to_common_dtype(given_b, given_a);
  check(condition.dtype() == DType::boolean, "where: the condition must be bool, got {}",
        name_of(condition.dtype()));
  check_alike("where", a, b);
  check_same_device("where", condition, a);
  const Shape shape =
      broadcast_shapes(condition.shape(), broadcast_shapes(a.shape(), b.shape(), "where"), "where");
  const Tensor y = a.new_empty(shape);
  const BroadcastPlan<4> plan(shape, {&y, &condition, &a, &b});
  dispatch_float(a.dtype(), "where", [&]<class T>() {
    launch_broadcast(a.device(), plan,
                     WhereKernel<T>{y.data<T>(), condition.data<bool>(), a.data<T>(), b.data<T>()});
  });
  return record(
      "where", y, {condition, a, b},
      [condition = Saved(condition), sa = a.shape(), sb = b.shape()](const Tensor& dy) -> Tensors {
        return {Tensor(), sum_to(fill_where(condition.get(), false, 0.0, dy), sa),
                sum_to(fill_where(condition.get(), true, 0.0, dy), sb)};
      });
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  check(mask.dtype() == DType::boolean, "masked_fill: the mask must be bool, got {}",
        name_of(mask.dtype()));
  check_same_device("masked_fill", x, mask);
  check(broadcast_shapes(mask.shape(), x.shape(), "masked_fill") == x.shape(),
        "masked_fill: mask {} does not broadcast to {}", mask.shape(), x.shape());
  return record("masked_fill", fill_where(mask, true, value, x), {x, mask},
                [mask = Saved(mask)](const Tensor& dy) -> Tensors {
                  return {fill_where(mask.get(), true, 0.0, dy), Tensor()};
                });
}

}  // namespace minim
