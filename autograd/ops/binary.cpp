#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "autograd/ops/checks.h"
#include "core/launch.h"

namespace minim {

template <class F, class T>
struct BinaryForward {
  T* y;
  const T *a, *b;
  HD void operator()(const Offsets<3>& at) const {
    y[at[0]] = T(F{}(Compute<T>(a[at[1]]), Compute<T>(b[at[2]])));
  }
};

// The gradient by the first operand, or by the second, before it is summed over broadcast dims.
template <class F, class T, bool first>
struct BinaryBackward {
  T* dx;
  const T *dy, *a, *b, *y;
  HD void operator()(const Offsets<5>& at) const {
    const Compute<T> va(a[at[2]]), vb(b[at[3]]), vy(y[at[4]]);
    dx[at[0]] =
        T(Compute<T>(dy[at[1]]) * (first ? F{}.grad_a(va, vb, vy) : F{}.grad_b(va, vb, vy)));
  }
};

template <class F, bool first>
Tensor binary_gradient(const Tensor& dy, const Tensor& a, const Tensor& b, const Tensor& y) {
  const Tensor dx = Tensor::empty_like(dy);
  const BroadcastPlan<5> plan(dy.shape(), {&dx, &dy, &a, &b, &y});
  dispatch_float(dy.dtype(), F::name, [&]<class T>() {
    launch_broadcast(dy.device(), plan,
                     BinaryBackward<F, T, first>{dx.data<T>(), dy.data<T>(), a.data<T>(),
                                                 b.data<T>(), y.data<T>()});
  });
  return dx;
}

template <class F>
Tensor apply_binary(const Tensor& given_a, const Tensor& given_b) {
  const Tensor a = to_common_dtype(given_a, given_b), b = to_common_dtype(given_b, given_a);
  check_alike(F::name, a, b);
  const Tensor y = a.new_empty(broadcast_shapes(a.shape(), b.shape(), F::name));
  const BroadcastPlan<3> plan(y.shape(), {&y, &a, &b});
  dispatch_float(a.dtype(), F::name, [&]<class T>() {
    launch_broadcast(a.device(), plan, BinaryForward<F, T>{y.data<T>(), a.data<T>(), b.data<T>()});
  });
  if constexpr (F::linear) {
    return record(
        F::name, y, {a, b}, [sa = a.shape(), sb = b.shape()](const Tensor& dy) -> Tensors {
          const auto scaled = [&dy](double by) { return by == 1.0 ? dy : affine(dy, by, 0.0); };
          return {sum_to(scaled(F{}.grad_a(0.0, 0.0, 0.0)), sa),
                  sum_to(scaled(F{}.grad_b(0.0, 0.0, 0.0)), sb)};
        });
  } else {
    return record(F::name, y, {a, b},
                  [a = Saved(a), b = Saved(b), y = Saved(y)](const Tensor& dy) -> Tensors {
                    const Tensor &va = a.get(), &vb = b.get(), &vy = y.get();
                    return {sum_to(binary_gradient<F, true>(dy, va, vb, vy), va.shape()),
                            sum_to(binary_gradient<F, false>(dy, va, vb, vy), vb.shape())};
                  });
  }
}

template <class... Fs>
Tensor choose_binary(TypeList<Fs...>, int functor, const Tensor& a, const Tensor& b) {
  static constexpr Tensor (*table[])(const Tensor&, const Tensor&) = {apply_binary<Fs>...};
  return table[functor](a, b);
}

Tensor binary(int functor, const Tensor& a, const Tensor& b) {
  return choose_binary(BinaryFunctors{}, functor, a, b);
}

Tensor sum_to(const Tensor& dy, const Shape& shape) {
  if (dy.shape() == shape) return dy;
  Dims dims;
  const int lead = dy.rank() - shape.rank();
  for (int i = 0; i < dy.rank(); ++i)
    if (i < lead || (shape[i - lead] == 1 && dy.shape()[i] != 1)) dims.push_back(i);
  return reshape(dims.empty() ? dy : sum(dy, dims, keep_dim), shape);
}

template <class T>
struct AddIntoKernel {
  T* sum;
  const T* x;
  HD void operator()(const Offsets<2>& at) const {
    sum[at[0]] = T(Compute<T>(sum[at[0]]) + Compute<T>(x[at[1]]));
  }
};

void add_into(const Tensor& sum, const Tensor& x) {
  check_alike("add_into", sum, x);
  check(sum.shape() == x.shape(), "add_into: shape {} does not fit {}", x.shape(), sum.shape());
  const BroadcastPlan<2> plan(sum.shape(), {&sum, &x});
  dispatch_float(sum.dtype(), "add_into", [&]<class T>() {
    launch_broadcast(sum.device(), plan, AddIntoKernel<T>{sum.data<T>(), x.data<T>()});
  });
  sum.bump_version();
}

}  // namespace minim
