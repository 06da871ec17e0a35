#pragma once

#include "core/math.h"
#include "core/portable.h"
#include "core/type_list.h"

// One struct per element-wise function: its value and its derivative, written once for every dtype
// and device. R is float or double; grad(x, y) is dy/dx at y = f(x).
namespace minim {

// Exact GELU, x times the normal distribution function, as BERT uses it (Hendrycks & Gimpel, 2016).
struct Gelu {
  static constexpr const char* name = "gelu";
  template <class R>
  HD R operator()(R x) const {
    return x * math::normal_cdf(x);
  }
  template <class R>
  HD R grad(R x, R) const {
    return math::normal_cdf(x) + x * math::normal_pdf(x);
  }
};

// GELU with the distribution function approximated by tanh, as GPT-2 uses it.
struct GeluTanh {
  static constexpr const char* name = "gelu_tanh";
  template <class R>
  HD static R inner(R x) {
    return math::tanh(R(0.79788456080286535588) * (x + R(0.044715) * x * x * x));
  }
  template <class R>
  HD R operator()(R x) const {
    return R(0.5) * x * (R(1) + inner(x));
  }
  template <class R>
  HD R grad(R x, R) const {
    const R t = inner(x);
    return R(0.5) * (R(1) + t) +
           R(0.5) * x * (R(1) - t * t) * R(0.79788456080286535588) * (R(1) + R(0.134145) * x * x);
  }
};

// x * sigmoid(1.702 x).
struct QuickGelu {
  static constexpr const char* name = "quick_gelu";
  template <class R>
  HD R operator()(R x) const {
    return x * math::sigmoid(R(1.702) * x);
  }
  template <class R>
  HD R grad(R x, R) const {
    const R s = math::sigmoid(R(1.702) * x);
    return s + R(1.702) * x * s * (R(1) - s);
  }
};

// x * sigmoid(x), also called swish.
struct Silu {
  static constexpr const char* name = "silu";
  template <class R>
  HD R operator()(R x) const {
    return x * math::sigmoid(x);
  }
  template <class R>
  HD R grad(R x, R) const {
    const R s = math::sigmoid(x);
    return s + x * s * (R(1) - s);
  }
};

// x * tanh(log(1 + exp(x))).
struct Mish {
  static constexpr const char* name = "mish";
  // tanh(log(1 + e)) = (e^2 + 2 e) / (e^2 + 2 e + 2), written so that e = exp(-|x|) never
  // overflows.
  template <class R>
  HD static R tanh_softplus(R x) {
    const R e = math::exp(x < 0 ? x : -x);
    const R n = x < 0 ? e * (e + R(2)) : R(1) + R(2) * e;
    return n / (x < 0 ? n + R(2) : n + R(2) * e * e);
  }
  template <class R>
  HD R operator()(R x) const {
    return x * tanh_softplus(x);
  }
  template <class R>
  HD R grad(R x, R) const {
    const R t = tanh_softplus(x);
    return t + x * (R(1) - t * t) * math::sigmoid(x);
  }
};

struct Relu {
  static constexpr const char* name = "relu";
  template <class R>
  HD R operator()(R x) const {
    return x < 0 ? R(0) : x;  // keeps NaN
  }
  template <class R>
  HD R grad(R x, R) const {
    return x <= 0 ? R(0) : R(1);  // NaN lets the gradient through
  }
};

struct Tanh {
  static constexpr const char* name = "tanh";
  template <class R>
  HD R operator()(R x) const {
    return math::tanh(x);
  }
  template <class R>
  HD R grad(R, R y) const {
    return R(1) - y * y;
  }
};

struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  template <class R>
  HD R operator()(R x) const {
    return math::sigmoid(x);
  }
  template <class R>
  HD R grad(R, R y) const {
    return y * (R(1) - y);
  }
};

struct Exp {
  static constexpr const char* name = "exp";
  template <class R>
  HD R operator()(R x) const {
    return math::exp(x);
  }
  template <class R>
  HD R grad(R, R y) const {
    return y;
  }
};

struct Log {
  static constexpr const char* name = "log";
  template <class R>
  HD R operator()(R x) const {
    return math::log(x);
  }
  template <class R>
  HD R grad(R x, R) const {
    return R(1) / x;
  }
};

struct Sqrt {
  static constexpr const char* name = "sqrt";
  template <class R>
  HD R operator()(R x) const {
    return math::sqrt(x);
  }
  template <class R>
  HD R grad(R, R y) const {
    return R(0.5) / y;
  }
};

struct Rsqrt {
  static constexpr const char* name = "rsqrt";
  template <class R>
  HD R operator()(R x) const {
    return R(1) / math::sqrt(x);
  }
  template <class R>
  HD R grad(R x, R y) const {
    return R(-0.5) * y / x;
  }
};

struct Abs {
  static constexpr const char* name = "abs";
  template <class R>
  HD R operator()(R x) const {
    return x < 0 ? -x : (x == 0 ? R(0) : x);
  }
  template <class R>
  HD R grad(R x, R) const {
    return x > 0 ? R(1) : (x < 0 ? R(-1) : R(0));
  }
};

struct Neg {
  static constexpr const char* name = "neg";
  template <class R>
  HD R operator()(R x) const {
    return -x;
  }
  template <class R>
  HD R grad(R, R) const {
    return R(-1);
  }
};

struct Square {
  static constexpr const char* name = "square";
  template <class R>
  HD R operator()(R x) const {
    return x * x;
  }
  template <class R>
  HD R grad(R x, R) const {
    return R(2) * x;
  }
};

// Every functor listed here gets its kernels, its place in the graph and its tests.
using UnaryFunctors = TypeList<Gelu, GeluTanh, QuickGelu, Silu, Mish, Relu, Tanh, Sigmoid, Exp, Log,
                               Sqrt, Rsqrt, Abs, Neg, Square>;

// Two operands: value and the derivative by each, y = f(a, b). The derivatives of a linear functor
// are constants, so its backward keeps no operands.

struct Add {
  static constexpr const char* name = "add";
  static constexpr bool linear = true;
  template <class R>
  HD R operator()(R a, R b) const {
    return a + b;
  }
  template <class R>
  HD R grad_a(R, R, R) const {
    return R(1);
  }
  template <class R>
  HD R grad_b(R, R, R) const {
    return R(1);
  }
};

struct Sub {
  static constexpr const char* name = "sub";
  static constexpr bool linear = true;
  template <class R>
  HD R operator()(R a, R b) const {
    return a - b;
  }
  template <class R>
  HD R grad_a(R, R, R) const {
    return R(1);
  }
  template <class R>
  HD R grad_b(R, R, R) const {
    return R(-1);
  }
};

struct Mul {
  static constexpr const char* name = "mul";
  static constexpr bool linear = false;
  template <class R>
  HD R operator()(R a, R b) const {
    return a * b;
  }
  template <class R>
  HD R grad_a(R, R b, R) const {
    return b;
  }
  template <class R>
  HD R grad_b(R a, R, R) const {
    return a;
  }
};

struct Div {
  static constexpr const char* name = "div";
  static constexpr bool linear = false;
  template <class R>
  HD R operator()(R a, R b) const {
    return a / b;
  }
  template <class R>
  HD R grad_a(R, R b, R) const {
    return R(1) / b;
  }
  template <class R>
  HD R grad_b(R, R b, R y) const {
    return -y / b;
  }
};

using BinaryFunctors = TypeList<Add, Sub, Mul, Div>;

}  // namespace minim
