#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include <doctest/doctest.h>

#include "core/cuda/gemm.h"
#include "core/random.h"
#include "tests/core/cuda/device_values.h"

namespace minim::cuda {
namespace {

// Half the distance of numbers near 1: what rounding to T costs.
template <class T>
constexpr double rounding = std::numeric_limits<T>::epsilon() / 2;
template <>
constexpr double rounding<f16> = 0x1p-11;
template <>
constexpr double rounding<bf16> = 0x1p-8;

template <class T>
std::vector<T> random(int64_t n, uint64_t seed) {
  std::vector<T> values;
  for (const double x : randn({n}, seed, DType::f64).to_vector<double>())
    values.push_back(T(Compute<T>(x)));
  return values;
}

template <class T>
double value(T x) {
  return double(Compute<T>(x));
}

struct Case {
  int64_t m, n, k;
  bool ta = false, tb = false;
  double alpha = 1, beta = 0;
  int64_t gap = 0;    // between rows
  int64_t shift = 0;  // of all operands in memory, in elements
  bool bias = false, a_sums = false;
  int64_t batch = 1;
  bool shared_b = false;  // one b for the whole batch
  bool tf32 = false;
};

// Device memory for products of one case, and the products by a triple loop in double.
template <class T>
class Setup {
 public:
  explicit Setup(const Case& c)
      : c_(c),
        a_stride_((c.ta ? c.m : c.k) + c.gap),
        b_stride_((c.tb ? c.k : c.n) + c.gap),
        c_stride_(c.n + c.gap),
        a_batch_((c.ta ? c.k : c.m) * a_stride_),
        b_batch_(c.shared_b ? 0 : (c.tb ? c.n : c.k) * b_stride_),
        c_batch_(c.m * c_stride_),
        a_(random<T>(c.shift + a_batch_ * c.batch, 1)),
        b_(random<T>(c.shift + (c.tb ? c.n : c.k) * b_stride_ * c.batch, 2)),
        before_(random<T>(c.shift + c_batch_ * c.batch, 3)),
        bias_(random<T>(c.shift + c.n, 4)),
        device_a_(a_),
        device_b_(b_),
        device_c_(before_),
        device_bias_(bias_),
        device_sums_(size_t(c.shift + c.m)) {}

  Product<T> product() const {
    Product<T> p{c_.m,
                 c_.n,
                 c_.k,
                 {device_a_.data() + c_.shift, a_stride_, c_.ta},
                 {device_b_.data() + c_.shift, b_stride_, c_.tb},
                 device_c_.data() + c_.shift,
                 c_stride_};
    p.alpha = Compute<T>(c_.alpha);
    p.beta = Compute<T>(c_.beta);
    if (c_.bias) p.bias = device_bias_.data() + c_.shift;
    if (c_.a_sums) p.a_sums = device_sums_.data() + c_.shift;
    p.batch = c_.batch;
    p.a_batch = a_batch_;
    p.b_batch = b_batch_;
    p.c_batch = c_batch_;
    p.tf32 = c_.tf32;
    return p;
  }

  // How far the results are from the triple loop, as a part of what rounding allows.
  double worst() const {
    const std::vector<T> ours = device_c_.values();
    double worst = 0;
    for (int64_t q = 0; q < c_.batch; ++q)
      for (int64_t i = 0; i < c_.m; ++i)
        for (int64_t j = 0; j < c_stride_; ++j) {
          const auto at = size_t(c_.shift + q * c_batch_ + i * c_stride_ + j);
          const double error = j < c_.n ? relative_error(value(ours[at]), q, i, j, at)
                                        : (value(ours[at]) == value(before_[at]) ? 0 : INFINITY);
          if (!(error <= worst)) worst = error;
        }
    return worst;
  }
  double worst_sum() const {
    const std::vector<T> ours = device_sums_.values();
    double worst = 0;
    for (int64_t i = 0; i < c_.m; ++i) {
      double sum = 0, size = 0;
      for (int64_t p = 0; p < c_.k; ++p) {
        sum += value(a_[a_at(0, i, p)]);
        size += std::abs(value(a_[a_at(0, i, p)]));
      }
      const double bound = double(c_.k + 2) * sum_rounding() * size + rounding<T> * std::abs(sum);
      const double error = std::abs(value(ours[size_t(c_.shift + i)]) - sum);
      if (!(error <= worst * bound)) worst = error / std::max(bound, 1e-300);
    }
    return worst;
  }
  std::vector<T> result() const { return device_c_.values(); }

 private:
  static double sum_rounding() { return std::numeric_limits<Compute<T>>::epsilon(); }
  size_t a_at(int64_t q, int64_t i, int64_t p) const {
    return size_t(c_.shift + q * a_batch_ + (c_.ta ? p * a_stride_ + i : i * a_stride_ + p));
  }
  size_t b_at(int64_t q, int64_t p, int64_t j) const {
    return size_t(c_.shift + q * b_batch_ + (c_.tb ? j * b_stride_ + p : p * b_stride_ + j));
  }

  // |error| <= (k + 4) eps sum |a| |b| whatever the order of the sum, and c and bias rounded to T
  // once each; tf32 rounds both factors to 11 bits.
  double relative_error(double ours, int64_t q, int64_t i, int64_t j, size_t at) const {
    double sum = c_.beta == 0 ? 0 : c_.beta * value(before_[at]), size = std::abs(sum);
    for (int64_t p = 0; p < c_.k; ++p) {
      const double product = c_.alpha * value(a_[a_at(q, i, p)]) * value(b_[b_at(q, p, j)]);
      sum += product;
      size += std::abs(product);
    }
    double bound = rounding<T> * std::abs(sum);
    if (c_.bias) sum += value(bias_[size_t(c_.shift + j)]);
    size += std::abs(sum);
    bound += double(c_.k + 4) * sum_rounding() * size + rounding<T> * std::abs(sum);
    if (c_.tf32) bound += 0x1p-10 * size;
    return bound == 0 ? (ours == sum ? 0 : INFINITY) : std::abs(ours - sum) / bound;
  }

  Case c_;
  int64_t a_stride_, b_stride_, c_stride_, a_batch_, b_batch_, c_batch_;
  std::vector<T> a_, b_, before_, bias_;
  DeviceValues<T> device_a_, device_b_, device_c_, device_bias_, device_sums_;
};

// A stream with a workspace, and products on it.
struct Products {
  explicit Products(size_t workspace_bytes = 1 << 20)
      : workspace(workspace_bytes), blas(stream, workspace.data(), workspace_bytes) {}

  TestStream stream;
  DeviceValues<uint8_t> workspace;
  Blas blas;
};

template <class T>
void check_gemm(Blas& blas, const Case& c) {
  CAPTURE(c.m);
  CAPTURE(c.n);
  CAPTURE(c.k);
  CAPTURE(c.ta);
  CAPTURE(c.tb);
  CAPTURE(c.gap);
  CAPTURE(c.shift);
  CAPTURE(c.bias);
  CAPTURE(c.a_sums);
  CAPTURE(c.batch);
  const Setup<T> setup(c);
  blas.gemm(setup.product());
  CHECK(setup.worst() <= 1);
  if (c.a_sums) CHECK(setup.worst_sum() <= 1);
}

constexpr std::array<int64_t, 3> shapes[] = {{1, 1, 1},    {3, 5, 7},    {1, 17, 33},
                                             {31, 1, 19},  {2, 2, 100},  {49, 51, 53},
                                             {64, 3, 128}, {32, 96, 64}, {5, 130, 40}};

TEST_CASE_TEMPLATE("cuda: gemm equals a triple loop for any size, transposition, stride and factor",
                   T, float, double, f16, bf16) {
  Products products;
  for (const auto [m, n, k] : shapes)
    for (const bool ta : {false, true})
      for (const bool tb : {false, true}) {
        check_gemm<T>(products.blas, {m, n, k, ta, tb});
        check_gemm<T>(products.blas, {m, n, k, ta, tb, 0.5, -2, 3, 1});
        check_gemm<T>(products.blas, {m, n, k, ta, tb, -1, 1, 8});
      }
}

TEST_CASE_TEMPLATE("cuda: gemm adds a bias to each row", T, float, double, f16, bf16) {
  Products products;
  for (const auto [m, n, k] : shapes)
    for (const int64_t shift : {0, 1}) {
      Case c{.m = m, .n = n, .k = k, .tb = true, .shift = shift, .bias = true};
      check_gemm<T>(products.blas, c);
      c.beta = 1;
      c.gap = 5;
      c.batch = 2;
      check_gemm<T>(products.blas, c);
    }
}

TEST_CASE_TEMPLATE("cuda: gemm sums the rows of a, the gradient of a bias", T, float, double, f16,
                   bf16) {
  Products products;
  for (const auto [m, n, k] : shapes)
    for (const bool ta : {false, true})
      for (const int64_t shift : {0, 1}) {
        Case c{.m = m, .n = n, .k = k, .ta = ta, .shift = shift, .a_sums = true};
        check_gemm<T>(products.blas, c);
        c.beta = 1;
        c.bias = true;
        check_gemm<T>(products.blas, c);
      }
}

TEST_CASE_TEMPLATE("cuda: gemm does a batch of products", T, float, double, f16, bf16) {
  Products products;
  for (const bool ta : {false, true})
    for (const bool shared_b : {false, true}) {
      check_gemm<T>(products.blas,
                    {.m = 9, .n = 7, .k = 65, .ta = ta, .batch = 5, .shared_b = shared_b});
      check_gemm<T>(products.blas, {.m = 1,
                                    .n = 8,
                                    .k = 3,
                                    .ta = ta,
                                    .beta = 0.5,
                                    .gap = 2,
                                    .batch = 3,
                                    .shared_b = shared_b});
    }
}

TEST_CASE_TEMPLATE(
    "cuda: an empty inner dimension leaves beta c and the bias, empty results are fine", T, float,
    double, f16, bf16) {
  Products products;
  check_gemm<T>(products.blas, {3, 4, 0});
  check_gemm<T>(products.blas, {3, 4, 0, true, true, 1, 0.5, 1});
  check_gemm<T>(products.blas, {.m = 3, .n = 4, .k = 0, .beta = 0.5, .bias = true, .a_sums = true});
  check_gemm<T>(products.blas, {0, 4, 3});
  check_gemm<T>(products.blas, {3, 0, 3});
  check_gemm<T>(products.blas, {.m = 3, .n = 0, .k = 3, .a_sums = true});
  check_gemm<T>(products.blas, {.m = 3, .n = 4, .k = 3, .batch = 0});
}

TEST_CASE("cuda: beta = 0 does not read c") {
  Products products;
  for (const int64_t k : {0, 5}) {
    const DeviceValues<float> a(random<float>(15, 1)), b(random<float>(20, 2)), c(12);
    products.blas.gemm<float>({3, 4, k, {a.data(), 5}, {b.data(), 4}, c.data(), 4});
    CHECK(std::ranges::none_of(c.values(), [](float x) { return std::isnan(x); }));
  }
}

TEST_CASE("cuda: products are exact in float unless tf32 is asked for") {
  // 1 + 2^-12 has 13 bits: tensor cores read it as 1.
  Products products;
  for (const bool tf32 : {false, true}) {
    const DeviceValues<float> a(std::vector<float>(64, 1 + 0x1p-12f)),
        b(std::vector<float>(64, 1.0f)), c(64);
    Product<float> p{8, 8, 8, {a.data(), 8}, {b.data(), 8}, c.data(), 8};
    p.tf32 = tf32;
    products.blas.gemm(p);
    // A library may do more than it must where tf32 is allowed.
    if (!tf32) CHECK(c.values() == std::vector<float>(64, 8 + 0x1p-9f));
    check_gemm<float>(products.blas, {.m = 17, .n = 24, .k = 64, .tf32 = tf32});
  }
}

TEST_CASE("cuda: sums of bf16 and f16 are kept in float") {
  // 1 + 2^-9 + .. + 2^-9: in bf16 every term but the first would be lost.
  Products products;
  std::vector<bf16> values(513, bf16(0x1p-9f));
  values[0] = bf16(1.0f);
  const DeviceValues<bf16> a(values), b(std::vector<bf16>(513, bf16(1.0f))), c(1);
  products.blas.gemm<bf16>({1, 1, 513, {a.data(), 513}, {b.data(), 1}, c.data(), 1});
  CHECK(float(c.values()[0]) == 2);
}

TEST_CASE("cuda: a shape is looked up once, and its next product allocates nothing") {
  Products products;
  const Setup<float> setup({.m = 32, .n = 16, .k = 128, .bias = true});
  products.blas.gemm(setup.product());
  CHECK(products.blas.shapes() == 1);
  const std::vector<float> first = setup.result();
  size_t free_before = 0, free_after = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free_before, &total), "test");
  for (int i = 0; i < 3; ++i)
    products.blas.gemm(setup.product());
  const Setup<float> elsewhere({.m = 32, .n = 16, .k = 128, .bias = true});
  products.blas.gemm(elsewhere.product());
  CHECK(products.blas.shapes() == 1);
  check_cuda(cudaMemGetInfo(&free_after, &total), "test");
  CHECK(setup.result() == first);
  CHECK(elsewhere.result() == first);
  products.blas.gemm(Setup<float>({.m = 32, .n = 16, .k = 129, .bias = true}).product());
  CHECK(products.blas.shapes() == 2);
}

TEST_CASE_TEMPLATE("cuda: products run in a graph as they do alone", T, float, double) {
  Products products;
  const Case c{.m = 8, .n = 16, .k = 128, .ta = true, .bias = true, .a_sums = true};
  const Setup<T> alone(c), in_graph(c);
  products.blas.gemm(alone.product());
  run_as_graph(products.stream, [&] { products.blas.gemm(in_graph.product()); });
  CHECK(in_graph.result() == alone.result());
  CHECK(in_graph.worst_sum() <= 1);
}

TEST_CASE("cuda: gemm works without a workspace") {
  const TestStream stream;
  Blas blas(stream, nullptr, 0);
  check_gemm<float>(blas, {.m = 4, .n = 4, .k = 300});
}

TEST_CASE("cuda: gemm refuses what does not fit, in a sentence with the shapes") {
  Products products;
  const DeviceValues<float> x(64);
  const auto refuses = [&](Product<float> p, const char* text) {
    CHECK_THROWS_WITH_AS(products.blas.gemm(p), text, Error);
  };
  const Product<float> good{2, 3, 4, {x.data(), 4}, {x.data(), 3}, x.data(), 3};
  Product<float> p = good;
  p.a.stride = 3;
  refuses(p, "gemm: f32 [2, 4] x [4, 3]: the rows of a are 3 elements apart, they have 4");
  p = good;
  p.b.transposed = true;
  refuses(p, "gemm: f32 [2, 4] x [4, 3]: the rows of b are 3 elements apart, they have 4");
  p = good;
  p.c_stride = 2;
  refuses(p, "gemm: f32 [2, 4] x [4, 3]: the rows of c are 2 elements apart, they have 3");
  p = good;
  p.b.data = nullptr;
  refuses(p, "gemm: f32 [2, 4] x [4, 3]: b is a null pointer");
  p = good;
  p.m = -1;
  refuses(p, "gemm: f32 [-1, 4] x [4, 3]: sizes cannot be negative");
  p = good;
  p.k = int64_t(1) << 31;
  refuses(p, "gemm: f32 [2, 2147483648] x [2147483648, 3]: cuBLASLt takes sizes up to 2147483647");
  p = good;
  p.batch = 2;
  refuses(p, "gemm: f32 [2, 4] x [4, 3], 2 times: the results, 0 elements apart, overlap");
  p = good;
  p.batch = 2;
  p.c_batch = 6;
  p.a_sums = x.data();
  refuses(p, "gemm: f32 [2, 4] x [4, 3], 2 times: a_sums needs a single product");
  CHECK_THROWS_WITH_AS(Blas(products.stream, nullptr, 512),
                       "gemm: a workspace of 512 bytes is a null pointer", Error);
  CHECK_THROWS_WITH_AS(Blas(products.stream, products.workspace.data() + 16, 512),
                       "gemm: the workspace must begin at a multiple of 256 bytes", Error);
}

}  // namespace
}  // namespace minim::cuda
