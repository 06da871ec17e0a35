#include <cmath>
#include <cstring>

#include <doctest/doctest.h>

#include "core/attention.h"
#include "core/parallel.h"

namespace minim {
namespace {

// Sequences of several lengths; their keys start `hidden` rows after their queries.
struct Packed {
  int64_t heads, head_dim;
  std::vector<int32_t> offsets = {0}, key_begin, key_end;

  Packed(int64_t heads, int64_t head_dim, const std::vector<int>& lengths, int hidden)
      : heads(heads), head_dim(head_dim) {
    for (int length : lengths) {
      key_begin.push_back(offsets.back() + std::min(hidden, length));
      offsets.push_back(offsets.back() + length);
      key_end.push_back(offsets.back());
    }
  }
  int64_t rows() const { return offsets.back(); }
  int64_t dim() const { return heads * head_dim; }
  Tensor random(uint64_t seed, DType dtype) const { return randn({rows(), dim()}, seed, dtype); }
};

template <class T>
struct Result {
  Tensor y, log_sum_exp, dq, dk, dv;
};

template <class T>
Result<T> run(const Packed& p, float dropout) {
  const DType dtype = dtype_of<T>;
  const Tensor q = p.random(1, dtype), k = p.random(2, dtype), v = p.random(3, dtype);
  const Tensor dy = p.random(4, dtype);
  const auto garbage = [&] { return Tensor::full({p.rows(), p.dim()}, NAN, dtype); };
  Result<T> r{garbage(), Tensor::full({p.rows(), p.heads}, NAN, dtype), garbage(), garbage(),
              garbage()};
  const AttentionArgs<T> args{q.data<T>(),
                              k.data<T>(),
                              v.data<T>(),
                              int64_t(p.key_begin.size()),
                              p.heads,
                              p.head_dim,
                              p.offsets.data(),
                              p.key_begin.data(),
                              p.key_end.data(),
                              T(0.3),
                              DropoutMask(dropout, 5, 17)};
  attention_forward(args, r.y.template data<T>(), r.log_sum_exp.template data<T>());
  attention_backward(args, p.rows(), r.y.template data<T>(), r.log_sum_exp.template data<T>(),
                     dy.data<T>(), r.dq.template data<T>(), r.dk.template data<T>(),
                     r.dv.template data<T>());
  return r;
}

using Rows = std::vector<double>;

// The same from the definition, one query and head at a time: y = P v with P = softmax(scale q kᵀ)
// * mask.
struct Naive {
  Rows y, dq, dk, dv;

  Naive(const Packed& p, float dropout) {
    const auto values = [&](uint64_t seed) {
      return p.random(seed, DType::f64).to_vector<double>();
    };
    const Rows q = values(1), k = values(2), v = values(3), dy = values(4);
    y = dq = dk = dv = Rows(q.size(), 0);
    const DropoutMask mask(dropout, 5, 17);
    int64_t block = 0;  // of the first probability of a query
    for (size_t s = 0; s < p.key_begin.size(); ++s) {
      const int64_t keys = p.key_end[s] - p.key_begin[s];
      for (int64_t h = 0; h < p.heads; ++h)
        for (int64_t i = p.offsets[s]; i < p.offsets[s + 1]; ++i) {
          add_query(p, q, k, v, dy, mask, block * 8, i * p.dim() + h * p.head_dim,
                    p.key_begin[s] * p.dim() + h * p.head_dim, keys);
          block += (keys + 7) / 8;
        }
    }
  }

  void add_query(const Packed& p, const Rows& q, const Rows& k, const Rows& v, const Rows& dy,
                 const DropoutMask& mask, int64_t first, int64_t query, int64_t key, int64_t keys) {
    const auto at = [&](int64_t j, int64_t c) { return size_t(key + j * p.dim() + c); };
    Rows weight(size_t(keys), 0), d_weight(size_t(keys), 0);
    double total = 0, dot = 0;
    for (int64_t j = 0; j < keys; ++j) {
      double score = 0;
      for (int64_t c = 0; c < p.head_dim; ++c)
        score += 0.3 * q[size_t(query + c)] * k[at(j, c)];
      weight[size_t(j)] = std::exp(score);
      total += weight[size_t(j)];
    }
    for (int64_t j = 0; j < keys; ++j) {
      weight[size_t(j)] /= total;
      const double kept = weight[size_t(j)] * double(mask(first + j));
      for (int64_t c = 0; c < p.head_dim; ++c) {
        y[size_t(query + c)] += kept * v[at(j, c)];
        dv[at(j, c)] += kept * dy[size_t(query + c)];
        d_weight[size_t(j)] += double(mask(first + j)) * dy[size_t(query + c)] * v[at(j, c)];
      }
      dot += weight[size_t(j)] * d_weight[size_t(j)];
    }
    for (int64_t j = 0; j < keys; ++j)
      for (int64_t c = 0; c < p.head_dim; ++c) {
        const double d_score = 0.3 * weight[size_t(j)] * (d_weight[size_t(j)] - dot);
        dq[size_t(query + c)] += d_score * k[at(j, c)];
        dk[at(j, c)] += d_score * q[size_t(query + c)];
      }
  }
};

void check_rows(const Tensor& ours, const Rows& expected, double tolerance) {
  const Rows values = ours.to_vector<double>();
  double worst = 0;
  for (size_t i = 0; i < expected.size(); ++i)
    if (const double e = std::abs(values[i] - expected[i]) / (1 + std::abs(expected[i]));
        !(e <= worst))
      worst = e;
  CHECK(worst <= tolerance);
}

template <class T>
void check_attention(const Packed& p, float dropout, double tolerance) {
  const Naive expected(p, dropout);
  const Result<T> ours = run<T>(p, dropout);
  check_rows(ours.y, expected.y, tolerance);
  check_rows(ours.dq, expected.dq, tolerance);
  check_rows(ours.dk, expected.dk, tolerance);
  check_rows(ours.dv, expected.dv, tolerance);
}

// 70 and 130 queries need a second and a third tile of rows.
const std::vector<int> lengths = {3, 1, 70, 0, 17, 130};

TEST_CASE("packed attention equals its definition, forward and backward") {
  for (float dropout : {0.0f, 0.25f}) {
    CAPTURE(dropout);
    check_attention<double>({3, 5, lengths, 0}, dropout, 1e-12);
    check_attention<float>({3, 5, lengths, 0}, dropout, 2e-5);
    check_attention<double>({1, 16, {9}, 0}, dropout, 1e-12);
  }
}

TEST_CASE("keys may begin later than queries; hidden rows get no gradient as keys") {
  const Packed p(2, 4, lengths, 1);
  for (float dropout : {0.0f, 0.25f})
    check_attention<double>(p, dropout, 1e-12);
  const Result<double> r = run<double>(p, 0);
  for (int64_t c = 0; c < p.dim(); ++c) {
    CHECK(r.dk.data<double>()[c] == 0);
    CHECK(r.dv.data<double>()[c] == 0);
    CHECK(r.y.data<double>()[3 * p.dim() + c] == 0);  // the sequence of length 1 has no key left
    CHECK(r.dq.data<double>()[3 * p.dim() + c] == 0);
  }
}

TEST_CASE("log_sum_exp is that of the scaled scores") {
  const Packed p(1, 2, {2}, 0);
  const Result<double> r = run<double>(p, 0);
  const Rows q = p.random(1, DType::f64).to_vector<double>(),
             k = p.random(2, DType::f64).to_vector<double>();
  const auto score = [&](size_t i, size_t j) {
    return 0.3 * (q[2 * i] * k[2 * j] + q[2 * i + 1] * k[2 * j + 1]);
  };
  for (size_t i = 0; i < 2; ++i)
    CHECK(std::abs(r.log_sum_exp.data<double>()[i] -
                   std::log(std::exp(score(i, 0)) + std::exp(score(i, 1)))) < 1e-14);
}

TEST_CASE("dropout blocks are counted row by row") {
  const Packed p(2, 4, {3, 9}, 0);
  // 2 heads, 3 rows of one block each and 9 rows of two.
  CHECK(attention_dropout_blocks(2, 2, p.offsets.data(), p.key_begin.data(), p.key_end.data()) ==
        2 * (3 * 1 + 9 * 2));
}

TEST_CASE("attention gives the same bits for any number of threads") {
  const int before = thread_count();
  const Packed p(4, 8, lengths, 0);
  set_thread_count(1);
  const Result<float> one = run<float>(p, 0.1f);
  for (int threads : {2, 3}) {
    set_thread_count(threads);
    const Result<float> several = run<float>(p, 0.1f);
    for (auto part :
         {&Result<float>::y, &Result<float>::dq, &Result<float>::dk, &Result<float>::dv})
      CHECK(std::memcmp((one.*part).raw(), (several.*part).raw(), size_t((one.*part).bytes())) ==
            0);
  }
  set_thread_count(before);
}

TEST_CASE("a sequence has the same bits alone as among others") {
  const Packed alone(2, 8, {20}, 0), among(2, 8, {20, 7, 33}, 0);
  const Tensor y = run<float>(alone, 0).y, many = run<float>(among, 0).y;
  CHECK(std::memcmp(y.raw(), many.raw(), size_t(y.bytes())) == 0);
}

}  // namespace
}  // namespace minim
