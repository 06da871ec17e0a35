#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/attention.h"
#include "core/cuda/attention.h"
#include "core/cuda/cudnn_attention.h"
#include "core/tensor.h"
#include "tests/core/cuda/device_values.h"

// Batches for attention on a device, run there and by core/attention.h in double.
namespace minim::cuda {

// Which rows belong to which sequence.
struct Rows {
  std::vector<int32_t> query_offsets = {0}, key_begin, key_end;

  // Queries and keys are the same rows, but for the first `hidden` keys of each sequence.
  static Rows of(const std::vector<int>& lengths, int hidden = 0) {
    Rows rows;
    for (const int length : lengths) {
      const int begin = rows.query_offsets.back();
      rows.query_offsets.push_back(begin + length);
      rows.key_begin.push_back(begin + std::min(hidden, length));
      rows.key_end.push_back(begin + length);
    }
    return rows;
  }
  // `queries` queries for each sequence of keys.
  static Rows of_few(int queries, const std::vector<int>& lengths) {
    Rows rows = of(lengths);
    for (size_t s = 0; s <= lengths.size(); ++s)
      rows.query_offsets[s] = int(s) * queries;
    return rows;
  }
  int64_t sequences() const { return int64_t(key_begin.size()); }
  int64_t queries() const { return query_offsets.back(); }
  int64_t keys() const { return key_end.back(); }
};

struct Case {
  Rows rows;
  int64_t heads, head_dim;
  float dropout = 0;
  int64_t max_queries = 0, max_keys = 0;  // 0: the lengths as they are
  bool graph = false;                     // captured into one, and run as that
  bool cudnn = false;                     // by cuDNN in place of our own kernels

  int64_t dim() const { return heads * head_dim; }
};

template <class T>
struct Inputs {
  std::vector<T> q, k, v, dy;

  explicit Inputs(const Case& c)
      : q(random(c.rows.queries() * c.dim(), 1)),
        k(random(c.rows.keys() * c.dim(), 2)),
        v(random(c.rows.keys() * c.dim(), 3)),
        dy(random(c.rows.queries() * c.dim(), 4)) {}

  static std::vector<T> random(int64_t n, uint64_t seed) {
    std::vector<T> values;
    for (const double x : randn({n}, seed, DType::f64).to_vector<double>())
      values.push_back(T(Compute<T>(x)));
    return values;
  }
};

template <class T, class C>
struct Outputs {
  std::vector<T> y, dq, dk, dv;
  std::vector<C> log_sum_exp;
};

inline constexpr double scale = 0.3;
inline DropoutMask mask_of(const Case& c) {
  return {c.dropout, 5, 17};
}

template <class T>
Outputs<T, Compute<T>> run(const Case& c, const Inputs<T>& in) {
  const DeviceValues<T> q(in.q), k(in.k), v(in.v), dy(in.dy);
  const DeviceValues<int32_t> query_offsets(c.rows.query_offsets), key_begin(c.rows.key_begin),
      key_end(c.rows.key_end);
  int64_t max_queries = c.max_queries, max_keys = c.max_keys;
  for (size_t s = 0; s < c.rows.key_begin.size() && c.max_queries == 0; ++s) {
    max_queries =
        std::max<int64_t>(max_queries, c.rows.query_offsets[s + 1] - c.rows.query_offsets[s]);
    max_keys = std::max<int64_t>(max_keys, c.rows.key_end[s] - c.rows.key_begin[s]);
  }
  const AttentionArgs<T> args{q.data(),
                              k.data(),
                              v.data(),
                              c.rows.sequences(),
                              c.heads,
                              c.head_dim,
                              query_offsets.data(),
                              key_begin.data(),
                              key_end.data(),
                              max_queries,
                              max_keys,
                              Compute<T>(scale),
                              mask_of(c)};
  const size_t per_head = size_t(c.rows.queries() * c.heads);
  const DeviceValues<T> y(in.q.size()), dq(in.q.size()), dk(in.k.size()), dv(in.k.size());
  const DeviceValues<Compute<T>> log_sum_exp(per_head), delta(per_head);
  const TestStream stream;
  const DeviceValues<char> memory(c.cudnn ? size_t(1) << 24 : 0);
  const auto scratch = [&](size_t bytes) -> void* {
    CHECK(bytes <= size_t(1) << 24);
    return memory.data();
  };
  const auto work = [&] {
    if (c.cudnn) {
      const bool forward =
          cudnn_attention_forward(args, y.data(), log_sum_exp.data(), scratch, stream);
      const bool backward =
          cudnn_attention_backward(args, c.rows.keys(), y.data(), log_sum_exp.data(), dy.data(),
                                   dq.data(), dk.data(), dv.data(), scratch, stream);
      CHECK((forward && backward));
      return;
    }
    attention_forward(args, y.data(), log_sum_exp.data(), stream);
    attention_backward(args, c.rows.keys(), y.data(), log_sum_exp.data(), dy.data(), dq.data(),
                       dk.data(), dv.data(), delta.data(), stream);
  };
  if (c.graph)
    run_as_graph(stream, work);
  else
    work();
  return {y.values(), dq.values(), dk.values(), dv.values(), log_sum_exp.values()};
}

template <class T>
std::vector<double> to_double(const std::vector<T>& x) {
  std::vector<double> y;
  for (const T value : x)
    y.push_back(double(Compute<T>(value)));
  return y;
}

// The same on the CPU, in double; its backward starts from the device's y and log_sum_exp, which
// are rounded.
template <class T>
Outputs<double, double> run_on_cpu(const Case& c, const Inputs<T>& in,
                                   const Outputs<T, Compute<T>>& ours) {
  const std::vector<double> q = to_double(in.q), k = to_double(in.k), v = to_double(in.v),
                            dy = to_double(in.dy), y = to_double(ours.y),
                            log_sum_exp = to_double(ours.log_sum_exp);
  const minim::AttentionArgs<double> args{q.data(),
                                          k.data(),
                                          v.data(),
                                          c.rows.sequences(),
                                          c.heads,
                                          c.head_dim,
                                          c.rows.query_offsets.data(),
                                          c.rows.key_begin.data(),
                                          c.rows.key_end.data(),
                                          scale,
                                          mask_of(c)};
  Outputs<double, double> out;
  out.y = out.dq = std::vector<double>(q.size());
  out.dk = out.dv = std::vector<double>(k.size());
  out.log_sum_exp = std::vector<double>(size_t(c.rows.queries() * c.heads));
  minim::attention_forward(args, out.y.data(), out.log_sum_exp.data());
  minim::attention_backward(args, c.rows.keys(), y.data(), log_sum_exp.data(), dy.data(),
                            out.dq.data(), out.dk.data(), out.dv.data());
  return out;
}

template <class T>
void check_near(const std::string& what, const std::vector<T>& ours,
                const std::vector<double>& expected, double tolerance) {
  CAPTURE(what);
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (double(ours[i]) == expected[i]) continue;  // infinities
    const double error = std::abs(double(ours[i]) - expected[i]) / (1 + std::abs(expected[i]));
    if (!(error <= worst)) worst = error;
  }
  CHECK(worst <= tolerance);
}

// Scores of up to 30 have an error of some 1e-6 in float, and so have the probabilities and sums of
// some hundred of them. f16 and bf16 round each result to 11 and 8 bits as well.
inline constexpr double float_tolerance = 3e-5;
template <class T>
inline constexpr double tolerance = float_tolerance;
template <>
inline constexpr double tolerance<double> = 1e-12;
template <>
inline constexpr double tolerance<f16> = float_tolerance + 0x1p-11;
template <>
inline constexpr double tolerance<bf16> = float_tolerance + 0x1p-8;

template <class T>
void check_attention(const Case& c) {
  CAPTURE(c.heads);
  CAPTURE(c.head_dim);
  CAPTURE(c.dropout);
  const Inputs<T> in(c);
  const auto ours = run(c, in);
  const auto expected = run_on_cpu(c, in, ours);
  // cuDNN rounds probabilities and their gradients to T as well, and products of some hundred of
  // them are summed.
  const double factor = c.cudnn ? 8 : 1;
  check_near("y", ours.y, expected.y, factor * tolerance<T>);
  check_near("log_sum_exp", ours.log_sum_exp, expected.log_sum_exp,
             factor * std::min(tolerance<T>, float_tolerance));
  check_near("dq", ours.dq, expected.dq, factor * tolerance<T>);
  check_near("dk", ours.dk, expected.dk, factor * tolerance<T>);
  check_near("dv", ours.dv, expected.dv, factor * tolerance<T>);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// One tile and several, ragged and full, small ones and none.
inline const std::vector<int> lengths = {3, 1, 70, 0, 17, 130, 64};

}  // namespace minim::cuda
