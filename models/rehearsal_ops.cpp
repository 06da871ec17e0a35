#include "core/dtype.h"
#include "models/rehearsal.h"

// Each operation of a rehearsal, as its namesake in autograd/ops.
namespace minim::models {

using memory::Category;

namespace {

constexpr std::string_view passing = "gradients on their way";
constexpr std::string_view widened = "factors in f32, which the CPU multiplies";

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

Rehearsal::Shadow Rehearsal::embedding(const Shadow& weight, int64_t tokens,
                                       std::string_view what) {
  const int64_t rows = weight.rows(), dim = weight.columns();
  return record("embedding", make(tokens, dim, what), {weight}, {},
                [this, rows, dim](const Shadow&) -> Shadows { return {gradient(rows, dim)}; });
}

Rehearsal::Shadow Rehearsal::add(const Shadow& given_a, const Shadow& given_b,
                                 std::string_view what) {
  const bool alike = given_a.dtype() == given_b.dtype();
  const Shadow a = alike ? given_a : to_full_precision(given_a, what);
  const Shadow b = alike ? given_b : to_full_precision(given_b, what);
  return record("add", make(a.rows(), a.columns(), what, a.dtype()), {a, b}, {},
                [](const Shadow& dy) -> Shadows {
                  return {dy.detach(), dy.detach()};
                });
}

Rehearsal::Shadow Rehearsal::layer_norm(const Shadow& given_x, const Shadow& weight,
                                        const Shadow& bias, std::string_view what) {
  const Shadow x = to_full_precision(given_x, what);
  const Shadow y = make(x.rows(), x.columns(), what);
  const Shadow mean = make(x.rows(), 1, "layer norms: mean and rstd of each row");
  const Shadow rstd = make(x.rows(), 1, "layer norms: mean and rstd of each row");
  return record("layer_norm", y, {x, weight, bias}, {x, mean, rstd},
                [this, n = x.columns()](const Shadow& dy) -> Shadows {
                  const Shadow dx = gradient(dy.rows(), n);
                  const Shadow dweight = gradient(1, n), dbias = gradient(1, n);
                  return {dx, dweight, dbias};
                });
}

// In f32, or in what it was; nothing is recorded.
Rehearsal::Shadow Rehearsal::convert(const Shadow& x, std::string_view what, DType dtype) {
  return x.dtype() == dtype ? x.detach() : make(x.rows(), x.columns(), what, dtype);
}

// What a backward that computes in f32 hands on.
Rehearsal::Shadows Rehearsal::back(const Shadows& wide, DType dtype) {
  Shadows gradients;
  for (const Shadow& dx : wide)
    gradients.push_back(dx.defined() ? convert(dx, passing, dtype) : dx);
  return gradients;
}

// The sum over rows: long ones are cut into parts, as autograd/ops/reduce.cpp does.
Rehearsal::Shadow Rehearsal::sum_of_rows(int64_t rows, int64_t columns, DType dtype) {
  const int64_t part = rows == 1 || columns == 1 ? 16384 : 256;
  Shadow y = gradient(1, columns, dtype);
  int64_t parts = ceil_div(rows, part);
  if (parts <= 1) return y;
  Shadow partial = gradient(parts, columns, dtype);
  while ((parts = ceil_div(parts, part)) > 1) {
    const Shadow shorter = gradient(parts, columns, dtype);
    partial = shorter;
  }
  return y;
}

// The CPU multiplies in f32 whatever autocast says.
Rehearsal::Shadow Rehearsal::linear(const Shadow& given_x, const Shadow& given_weight,
                                    const Shadow& given_bias, std::string_view what) {
  const Shadow x = to_autocast(given_x);
  const Shadow weight = to_autocast(given_weight), bias = to_autocast(given_bias);
  const int64_t rows = x.rows(), in = weight.columns(), out = weight.rows();
  const DType dtype = x.dtype();
  Shadow wide;
  {
    const Shadow x_wide = convert(x, widened), w_wide = convert(weight, widened),
                 b_wide = convert(bias, widened);
    wide = make(rows, out, what);
  }
  const bool wants_dx = x.requires_grad(), wants_dw = weight.requires_grad();
  const bool wants_db = bias.requires_grad();
  return record("linear", convert(wide, what, dtype), {x, weight, bias}, {x},
                [=, this, kept = x.detach(), kept_weight = weight.detach()](const Shadow& any_dy) {
                  const Shadow dy = convert(any_dy, passing);
                  Shadow dx, dw, db;
                  if (wants_dx) {
                    const Shadow w_wide = convert(kept_weight, widened);
                    dx = gradient(rows, in);
                  }
                  if (wants_dw) {
                    const Shadow x_wide = convert(kept, widened);
                    dw = gradient(out, in);
                  }
                  if (wants_db) db = sum_of_rows(rows, out);
                  return back({dx, dw, db}, dtype);
                });
}

Rehearsal::Shadow Rehearsal::dropout(const Shadow& x, double p, std::string_view what) {
  if (p == 0 || !options_.training) return x;
  return record("dropout", make(x.rows(), x.columns(), what, x.dtype()), {x}, {},
                [this](const Shadow& dy) -> Shadows {
                  return {gradient(dy.rows(), dy.columns(), dy.dtype())};
                });
}

Rehearsal::Shadow Rehearsal::unary(std::string_view op, const Shadow& x, std::string_view what) {
  const Shadow y = make(x.rows(), x.columns(), what, x.dtype());
  return record(op, y, {x}, {x, y}, [this](const Shadow& dy) -> Shadows {
    return {gradient(dy.rows(), dy.columns(), dy.dtype())};
  });
}

Rehearsal::Shadow Rehearsal::scale(const Shadow& x, std::string_view what) {
  return record(
      "scale", make(x.rows(), x.columns(), what), {x}, {},
      [this](const Shadow& dy) -> Shadows { return {gradient(dy.rows(), dy.columns())}; });
}

Rehearsal::Shadow Rehearsal::attention(const Shadow& given_q, const Shadow& given_k,
                                       const Shadow& given_v, int64_t heads, int64_t most_keys,
                                       const Shadow& offsets, std::string_view what) {
  constexpr int64_t tile_rows = 64;
  constexpr std::string_view in_f32 = "attention: q, k and v in f32";
  const int64_t scores = 4 * options_.threads * tile_rows * most_keys;
  const Shadow any_q = to_autocast(given_q), any_k = to_autocast(given_k);
  const Shadow any_v = to_autocast(given_v);
  const Shadow q = convert(any_q, in_f32), k = convert(any_k, in_f32), v = convert(any_v, in_f32);
  const DType dtype = any_q.dtype();
  const Shadow y = make(q.rows(), q.columns(), what);
  const Shadow log_sum_exp = make(q.rows(), heads, "attention: log-sum-exp of each row and head");
  hold(scores, Category::workspace, "scores");
  return record(
      "attention", convert(y, what, dtype), {any_q, any_k, any_v},
      {q, k, v, y, log_sum_exp, offsets},
      [=, this, queries = q.rows(), keys = k.rows(), dim = q.columns()](const Shadow& any_dy) {
        const Shadow dy = convert(any_dy, passing);
        const Shadow dq = gradient(queries, dim);
        const Shadow dk = gradient(keys, dim), dv = gradient(keys, dim);
        hold(2 * scores, Category::workspace, "scores and their gradients");
        return back({dq, dk, dv}, dtype);
      });
}

Rehearsal::Shadow Rehearsal::index_select(const Shadow& x, int64_t rows, std::string_view what) {
  const int64_t all = x.rows(), dim = x.columns();
  return record("index_select", make(rows, dim, what), {x}, {},
                [this, all, dim](const Shadow&) -> Shadows { return {gradient(all, dim)}; });
}

Rehearsal::Shadow Rehearsal::cross_entropy(const Shadow& given_x) {
  const Shadow x = to_full_precision(given_x, "loss");
  const int64_t rows = x.rows();
  const auto numbers = [&](int64_t n) { return make(n, 1, "loss", x.dtype()); };
  const Shadow losses = numbers(rows), largest = numbers(rows), log_sum = numbers(rows);
  const Shadow divisor = numbers(1);
  return record("cross_entropy", numbers(1), {x}, {x, largest, log_sum, divisor},
                [this, rows, classes = x.columns()](const Shadow&) -> Shadows {
                  return {gradient(rows, classes)};
                });
}

Rehearsal::Shadow Rehearsal::mean_loss(const Shadow& given_x) {
  const Shadow x = to_full_precision(given_x, "loss");
  const int64_t rows = x.rows(), columns = x.columns();
  Shadow targets, y;  // targets are f32 until the loss asks for more
  if (x.dtype() != DType::f32) targets = make(rows, columns, "loss", x.dtype());
  {
    const Shadow partial = make(ceil_div(rows * columns, 4096), 1, "loss", x.dtype());
    const Shadow sum = sum_of_rows(partial.rows(), 1, x.dtype());
    y = make(1, 1, "loss", x.dtype());
  }
  return record("loss", y, {x}, {x}, [this, rows, columns](const Shadow&) -> Shadows {
    return {gradient(rows, columns)};
  });
}

}  // namespace minim::models
