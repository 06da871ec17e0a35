#include <algorithm>
#include <optional>

#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "core/launch.h"

namespace minim {

template <class F, class T>
struct UnaryForward {
  T* y;
  const T* x;
  HD void operator()(int64_t i) const { y[i] = T(F{}(Compute<T>(x[i]))); }
};

template <class F, class T>
struct UnaryBackward {
  T* dx;
  const T *dy, *x, *y;
  HD void operator()(int64_t i) const {
    dx[i] = T(Compute<T>(dy[i]) * F{}.grad(Compute<T>(x[i]), Compute<T>(y[i])));
  }
};

template <class F>
Tensor apply_unary(const Tensor& any_x) {
  const Tensor x = any_x.contiguous();
  const Tensor y = Tensor::empty_like(x);
  dispatch_float(x.dtype(), F::name, [&]<class T>() {
    launch_elements(x.device(), x.numel(), UnaryForward<F, T>{y.data<T>(), x.data<T>()});
  });
  return record(F::name, y, {any_x}, [x = Saved(x), y = Saved(y)](const Tensor& any_dy) -> Tensors {
    const Tensor dy = any_dy.contiguous(), dx = Tensor::empty_like(dy);
    dispatch_float(dy.dtype(), F::name, [&]<class T>() {
      launch_elements(
          dy.device(), dy.numel(),
          UnaryBackward<F, T>{dx.data<T>(), dy.data<T>(), x.get().data<T>(), y.get().data<T>()});
    });
    return {dx};
  });
}

template <class... Fs>
Tensor choose_unary(TypeList<Fs...>, int functor, const Tensor& x) {
  static constexpr Tensor (*table[])(const Tensor&) = {apply_unary<Fs>...};
  return table[functor](x);
}

Tensor unary(int functor, const Tensor& x) {
  // Whose results span more than f16 does.
  constexpr int full[] = {UnaryFunctors::index_of<Exp>(), UnaryFunctors::index_of<Log>(),
                          UnaryFunctors::index_of<Rsqrt>()};
  const bool is_full = std::ranges::find(full, functor) != std::end(full);
  return choose_unary(UnaryFunctors{}, functor, is_full ? to_full_precision(x) : x);
}

// --- functions with constants: y = f(x), dx = dy f'(x) ---

template <class T>
struct AffineKernel {
  T* y;
  const T* x;
  Compute<T> scale, shift;
  HD void operator()(int64_t i) const { y[i] = T(Compute<T>(x[i]) * scale + shift); }
};

Tensor affine(const Tensor& any_x, double scale, double shift) {
  const Tensor x = any_x.contiguous();
  const Tensor y = Tensor::empty_like(x);
  dispatch_float(x.dtype(), "affine", [&]<class T>() {
    launch_elements(
        x.device(), x.numel(),
        AffineKernel<T>{y.data<T>(), x.data<T>(), Compute<T>(scale), Compute<T>(shift)});
  });
  return record("affine", y, {any_x},
                [scale](const Tensor& dy) -> Tensors { return {affine(dy, scale, 0.0)}; });
}

template <class T>
struct PowForward {
  T* y;
  const T* x;
  Compute<T> exponent;
  HD void operator()(int64_t i) const { y[i] = T(math::pow(Compute<T>(x[i]), exponent)); }
};

template <class T>
struct PowBackward {
  T* dx;
  const T *dy, *x;
  Compute<T> exponent;
  HD void operator()(int64_t i) const {
    // x^0 is the constant 1, at 0 too, where exponent * x^-1 would be NaN.
    dx[i] = exponent == 0 ? T(Compute<T>(0))
                          : T(Compute<T>(dy[i]) * exponent *
                              math::pow(Compute<T>(x[i]), exponent - Compute<T>(1)));
  }
};

Tensor pow(const Tensor& given_x, double exponent) {
  const Tensor any_x = to_full_precision(given_x);
  const Tensor x = any_x.contiguous();
  const Tensor y = Tensor::empty_like(x);
  dispatch_float(x.dtype(), "pow", [&]<class T>() {
    launch_elements(x.device(), x.numel(),
                    PowForward<T>{y.data<T>(), x.data<T>(), Compute<T>(exponent)});
  });
  return record("pow", y, {any_x}, [x = Saved(x), exponent](const Tensor& any_dy) -> Tensors {
    const Tensor dy = any_dy.contiguous(), dx = Tensor::empty_like(dy);
    dispatch_float(dy.dtype(), "pow", [&]<class T>() {
      launch_elements(
          dy.device(), dy.numel(),
          PowBackward<T>{dx.data<T>(), dy.data<T>(), x.get().data<T>(), Compute<T>(exponent)});
    });
    return {dx};
  });
}

template <class T>
struct ClampForward {
  T* y;
  const T* x;
  Compute<T> min, max;
  HD void operator()(int64_t i) const {
    Compute<T> v(x[i]);
    v = v < min ? min : v;
    y[i] = T(v > max ? max : v);
  }
};

template <class T>
struct ClampBackward {
  T* dx;
  const T *dy, *x;
  Compute<T> min, max;
  HD void operator()(int64_t i) const {
    const Compute<T> v(x[i]);
    dx[i] = v > min && v < max ? dy[i] : T(Compute<T>(0));
  }
};

Tensor clamp(const Tensor& any_x, std::optional<double> min, std::optional<double> max) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double low = min.value_or(-infinity), high = max.value_or(infinity);
  const Tensor x = any_x.contiguous();
  const Tensor y = Tensor::empty_like(x);
  dispatch_float(x.dtype(), "clamp", [&]<class T>() {
    launch_elements(x.device(), x.numel(),
                    ClampForward<T>{y.data<T>(), x.data<T>(), Compute<T>(low), Compute<T>(high)});
  });
  return record("clamp", y, {any_x}, [x = Saved(x), low, high](const Tensor& any_dy) -> Tensors {
    const Tensor dy = any_dy.contiguous(), dx = Tensor::empty_like(dy);
    dispatch_float(dy.dtype(), "clamp", [&]<class T>() {
      launch_elements(dy.device(), dy.numel(),
                      ClampBackward<T>{dx.data<T>(), dy.data<T>(), x.get().data<T>(),
                                       Compute<T>(low), Compute<T>(high)});
    });
    return {dx};
  });
}

Tensor to(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return record("to", convert(x, dtype), {x},
                [from = x.dtype()](const Tensor& dy) -> Tensors { return {convert(dy, from)}; });
}

Tensor to(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  return record("to", x.to(device), {x},
                [from = x.device()](const Tensor& dy) -> Tensors { return {dy.to(from)}; });
}

}  // namespace minim
