#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "autograd/ops/checks.h"
#include "core/product.h"

namespace minim {

namespace {

// y = x wᵀ + b.   x: [rows, in], w: [out, in], y: [rows, out]
Tensor linear_forward(const Tensor& x, const Tensor& w, const Tensor& b, const Shape& shape) {
  const Tensor y = x.new_empty(shape);
  const int64_t in = w.size(1), out = w.size(0), rows = out > 0 ? y.numel() / out : 0;
  dispatch_float(x.dtype(), "linear", [&]<class T>() {
    Product<T> product{rows, out, in, {x.data<T>(), in}, {w.data<T>(), in, true}, y.data<T>(), out};
    if (b.defined()) product.bias = b.data<T>();
    multiply(x.device(), product);
  });
  return y;
}

}  // namespace

Tensor linear(const Tensor& given_x, const Tensor& given_weight, const Tensor& given_bias) {
  const Tensor any_x = to_autocast(given_x);
  const Tensor weight = to_autocast(given_weight), bias = to_autocast(given_bias);
  check(weight.rank() == 2, "linear: weight {} must be [out, in]", weight.shape());
  const int64_t in = weight.size(1), out = weight.size(0);
  check(any_x.rank() >= 1 && any_x.shape().back() == in,
        "linear: input {} does not fit weight {} (last dim must be {})", any_x.shape(),
        weight.shape(), in);
  check_floating("linear", any_x);
  check_alike("linear", any_x, weight);
  if (bias.defined()) {
    check(bias.shape() == Shape{out}, "linear: bias {} does not fit weight {}", bias.shape(),
          weight.shape());
    check_alike("linear", any_x, bias);
  }
  const DType dtype = any_x.dtype(), computed = product_dtype(dtype, any_x.device());
  const Tensor x = any_x.contiguous(), w = weight.contiguous();
  Shape shape = x.shape();
  shape.back() = out;
  const Tensor y =
      linear_forward(convert(x, computed), convert(w, computed),
                     bias.defined() ? convert(bias.contiguous(), computed) : bias, shape);
  const bool wants_dx = any_x.requires_grad(), wants_dw = weight.requires_grad();
  const bool wants_db = bias.defined() && bias.requires_grad();
  return record(
      "linear", convert(y, dtype), {any_x, weight, bias},
      [x = Saved(x), w = Saved(w), wants_dx, wants_dw, wants_db,
       computed](const Tensor& any_dy) -> Tensors {
        const DType dtype = any_dy.dtype();
        const Tensor dy = convert(any_dy.contiguous(), computed);
        const int64_t in = w.get().size(1), out = w.get().size(0);
        const int64_t rows = out > 0 ? dy.numel() / out : 0;
        Tensor dx, dw, db;
        dispatch_float(computed, "linear", [&]<class T>() {
          const Matrix<T> up{dy.data<T>(), out};
          if (wants_dx) {
            const Tensor weight = convert(w.get(), computed);
            dx = dy.new_empty(x.get().shape());
            multiply(dy.device(),
                     Product<T>{rows, in, out, up, {weight.data<T>(), in}, dx.data<T>(), in});
          }
          if (wants_dw) {
            const Tensor input = convert(x.get(), computed);
            dw = dy.new_empty(w.get().shape());
            Product<T> product{out,          in, rows, {up.data, out, true}, {input.data<T>(), in},
                               dw.data<T>(), in};
            if (wants_db && dy.device().is_cuda()) {  // which sums on the way
              db = dy.new_empty({out});
              product.a_sums = db.data<T>();
            }
            multiply(dy.device(), product);
          }
        });
        if (wants_db && !db.defined()) db = sum(reshape(dy, {rows, out}), {0});
        const auto back = [dtype](const Tensor& t) { return t.defined() ? convert(t, dtype) : t; };
        return {back(dx), back(dw), back(db)};
      });
}

}  // namespace minim
