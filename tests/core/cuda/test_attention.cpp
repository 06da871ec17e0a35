#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "core/attention.h"
#include "core/cuda/attention.h"
#include "core/cuda/cudnn_attention.h"
#include "core/tensor.h"
#include "tests/core/cuda/device_values.h"

// Attention on the device equals core/attention.h's on the CPU in double, given the same numbers.
namespace minim::cuda {
namespace {

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

constexpr double scale = 0.3;
const DropoutMask mask_of(const Case& c) {
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
      CHECK(cudnn_attention_forward(args, y.data(), log_sum_exp.data(), scratch, stream));
      CHECK(cudnn_attention_backward(args, c.rows.keys(), y.data(), log_sum_exp.data(), dy.data(),
                                     dq.data(), dk.data(), dv.data(), scratch, stream));
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
constexpr double float_tolerance = 3e-5;
template <class T>
constexpr double tolerance = float_tolerance;
template <>
constexpr double tolerance<double> = 1e-12;
template <>
constexpr double tolerance<f16> = float_tolerance + 0x1p-11;
template <>
constexpr double tolerance<bf16> = float_tolerance + 0x1p-8;

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
const std::vector<int> lengths = {3, 1, 70, 0, 17, 130, 64};

TEST_CASE_TEMPLATE("cuda: attention of a ragged batch equals the CPU's", T, float, double, f16,
                   bf16) {
  for (const float dropout : {0.0f, 0.25f}) {
    check_attention<T>({Rows::of(lengths), 2, 5, dropout});
    check_attention<T>({Rows::of({16, 33, 1}), 1, 64, dropout});
  }
}

TEST_CASE_TEMPLATE("cuda: attention with heads of up to 256 numbers equals the CPU's", T, float,
                   double, f16, bf16) {
  for (const int64_t head_dim : {65, 128, 256})
    check_attention<T>({Rows::of({5, 40, 17}), 1, head_dim, 0.25f});
}

TEST_CASE_TEMPLATE("cuda: keys may begin later than queries; hidden rows get no gradient as keys",
                   T, float, bf16) {
  const Case c{Rows::of(lengths, 1), 2, 4, 0.25f};
  check_attention<T>(c);
  const auto out = run(c, Inputs<T>(c));
  for (int64_t i = 0; i < c.dim(); ++i) {
    CHECK(float(out.dk[size_t(i)]) == 0);
    CHECK(float(out.dv[size_t(i)]) == 0);
    CHECK(float(out.y[size_t(3 * c.dim() + i)]) == 0);  // of length 1: it has no key left
    CHECK(float(out.dq[size_t(3 * c.dim() + i)]) == 0);
  }
}

TEST_CASE_TEMPLATE("cuda: a few queries attend to long sequences, as in the last block", T, float,
                   double, f16, bf16) {
  for (const int queries : {1, 3, 20})
    check_attention<T>({Rows::of_few(queries, {7, 130, 16, 1}), 3, 8, 0.1f});
}

TEST_CASE("cuda: dropout keeps exactly the probabilities that DropoutMask keeps") {
  // All scores are 0, and v has the rows of the identity: y is the mask over the number of keys.
  for (const int64_t head_dim : {64, 100}) {
    const Case c{Rows::of({9, int(head_dim), 0, 30}), 2, head_dim, 0.5f};
    Inputs<float> in(c);
    std::fill(in.q.begin(), in.q.end(), 0.0f);
    std::fill(in.v.begin(), in.v.end(), 0.0f);
    for (size_t s = 0; s < c.rows.key_begin.size(); ++s)
      for (int64_t j = c.rows.key_begin[s]; j < c.rows.key_end[s]; ++j)
        for (int64_t h = 0; h < c.heads; ++h)
          in.v[size_t(j * c.dim() + h * head_dim + j - c.rows.key_begin[s])] = 1;
    const auto out = run(c, in);
    const DropoutMask mask = mask_of(c);
    int64_t block = 0, wrong = 0;
    for (size_t s = 0; s < c.rows.key_begin.size(); ++s) {
      const int64_t keys = c.rows.key_end[s] - c.rows.key_begin[s];
      for (int64_t h = 0; h < c.heads; ++h)
        for (int64_t i = c.rows.query_offsets[s]; i < c.rows.query_offsets[s + 1]; ++i) {
          for (int64_t j = 0; j < keys; ++j) {
            const bool kept = out.y[size_t(i * c.dim() + h * head_dim + j)] != 0;
            wrong += kept != (mask(block * 8 + j) != 0);
          }
          block += (keys + 7) / 8;
        }
    }
    CHECK(wrong == 0);
    CHECK(block == attention_dropout_blocks(c.rows.sequences(), c.heads,
                                            c.rows.query_offsets.data(), c.rows.key_begin.data(),
                                            c.rows.key_end.data()));
  }
}

TEST_CASE("cuda: dropout with p = 1 drops everything") {
  const Case c{Rows::of({9, 20}), 1, 4, 1.0f};
  const auto out = run(c, Inputs<float>(c));
  for (const auto part : {&Outputs<float, float>::y, &Outputs<float, float>::dq,
                          &Outputs<float, float>::dk, &Outputs<float, float>::dv})
    CHECK(std::ranges::all_of(out.*part, [](float x) { return x == 0; }));
}

TEST_CASE_TEMPLATE("cuda: guesses of the longest sequence change no bit of attention", T, float,
                   bf16) {
  Case c{Rows::of({30, 150, 5}), 2, 8, 0.1f};
  const Inputs<T> in(c);
  const auto expected = run(c, in);
  for (const int64_t guess : {1, 70, 400}) {
    c.max_queries = c.max_keys = guess;
    const auto out = run(c, in);
    CHECK(same_bits(out.y, expected.y));
    CHECK(same_bits(out.dq, expected.dq));
    CHECK(same_bits(out.dk, expected.dk));
    CHECK(same_bits(out.dv, expected.dv));
  }
}

TEST_CASE("cuda: attention gives the same bits every time, and in a graph") {
  Case c{Rows::of({30, 150, 5}), 2, 8, 0.1f};
  const Inputs<bf16> in(c);
  const auto first = run(c, in);
  for (const bool graph : {false, true}) {
    c.graph = graph;
    const auto again = run(c, in);
    CHECK(same_bits(again.y, first.y));
    CHECK(same_bits(again.log_sum_exp, first.log_sum_exp));
    CHECK(same_bits(again.dq, first.dq));
    CHECK(same_bits(again.dk, first.dk));
    CHECK(same_bits(again.dv, first.dv));
  }
}

TEST_CASE("cuda: a sequence has the same bits alone as among others") {
  const Case alone{Rows::of({20}), 2, 8}, among{Rows::of({20, 7, 133}), 2, 8};
  const Inputs<float> one(alone);
  Inputs<float> several(among);
  const auto put = [](std::vector<float>& to, const std::vector<float>& from) {
    std::copy(from.begin(), from.end(), to.begin());
  };
  put(several.q, one.q);
  put(several.k, one.k);
  put(several.v, one.v);
  put(several.dy, one.dy);
  const auto a = run(alone, one);
  auto b = run(among, several);
  b.y.resize(a.y.size());
  b.dk.resize(a.dk.size());
  CHECK(same_bits(a.y, b.y));
  CHECK(same_bits(a.dk, b.dk));
}

TEST_CASE("cuda: attention carries NaN and infinity to the rows that they concern") {
  const Case c{Rows::of({3, 4}), 1, 4};
  Inputs<float> in(c);
  in.q[0] = NAN;
  const auto out = run(c, in);
  CHECK(std::isnan(out.y[0]));
  CHECK(std::isnan(out.dk[0]));
  for (size_t i = 4; i < 28; ++i)
    CHECK(std::isfinite(out.y[i]));
  for (size_t i = 12; i < 28; ++i)
    CHECK(std::isfinite(out.dk[i]));
}

TEST_CASE("cuda: attention refuses heads that do not fit, and takes an empty batch") {
  AttentionArgs<float> args{nullptr,
                            nullptr,
                            nullptr,
                            1,
                            2,
                            300,
                            nullptr,
                            nullptr,
                            nullptr,
                            1,
                            1,
                            1.0f,
                            DropoutMask(0, 0, 0)};
  CHECK_THROWS_WITH_AS(attention_forward<float>(args, nullptr, nullptr, nullptr),
                       "attention: head_dim is 300, it must be 1 to 256 on a CUDA device", Error);
  args.head_dim = 64;
  args.heads = 65536;
  CHECK_THROWS_WITH_AS(attention_backward<float>(args, 0, nullptr, nullptr, nullptr, nullptr,
                                                 nullptr, nullptr, nullptr, nullptr),
                       "attention backward: 65536 heads, there must be 1 to 65535", Error);
  args.heads = 1;
  args.sequences = 0;
  attention_forward<float>(args, nullptr, nullptr, nullptr);
  attention_backward<float>(args, 0, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                            nullptr);
}

// Sets MINIM_ATTENTION while it lives.
class Chosen {
 public:
  explicit Chosen(const char* name) { setenv("MINIM_ATTENTION", name, 1); }
  ~Chosen() { unsetenv("MINIM_ATTENTION"); }
  Chosen(const Chosen&) = delete;
  Chosen& operator=(const Chosen&) = delete;
};

// What a call with these arguments throws; "" if nothing.
template <class T>
std::string refusal(const Case& c) {
  try {
    run(c, Inputs<T>(c));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// Says why, where cuDNN cannot be used.
bool has_cudnn() {
  const std::string why =
      refusal<bf16>({.rows = Rows::of({4}), .heads = 1, .head_dim = 64, .cudnn = true});
  if (!why.empty()) MESSAGE("skipped: " << why);
  return why.empty();
}

TEST_CASE_TEMPLATE("cuda: cuDNN's attention equals the CPU's", T, f16, bf16) {
  const Chosen chosen("cudnn");
  if (!has_cudnn()) return;
  for (const bool graph : {false, true}) {
    check_attention<T>({.rows = Rows::of(lengths), .heads = 2, .head_dim = 8, .cudnn = true});
    check_attention<T>(
        {.rows = Rows::of({16, 33, 1}), .heads = 1, .head_dim = 64, .graph = graph, .cudnn = true});
  }
  for (const int64_t head_dim : {72, 128})
    check_attention<T>(
        {.rows = Rows::of({5, 40, 17}), .heads = 2, .head_dim = head_dim, .cudnn = true});
  for (const int queries : {1, 3, 20})
    check_attention<T>(
        {.rows = Rows::of_few(queries, {7, 130, 16, 1}), .heads = 3, .head_dim = 8, .cudnn = true});
}

TEST_CASE(
    "cuda: cuDNN's attention gives zeros to queries without keys and to rows that are no keys") {
  const Chosen chosen("cudnn");
  if (!has_cudnn()) return;
  const Case c{.rows = Rows::of(lengths, 1), .heads = 2, .head_dim = 8, .cudnn = true};
  check_attention<bf16>(c);
  const auto out = run(c, Inputs<bf16>(c));
  for (int64_t i = 0; i < c.dim(); ++i) {
    CHECK(float(out.dk[size_t(i)]) == 0);
    CHECK(float(out.dv[size_t(i)]) == 0);
    CHECK(float(out.y[size_t(3 * c.dim() + i)]) == 0);  // of length 1: it has no key left
    CHECK(float(out.dq[size_t(3 * c.dim() + i)]) == 0);
  }
  CHECK(out.log_sum_exp[size_t(3 * c.heads)] == -std::numeric_limits<float>::infinity());
}

TEST_CASE("cuda: batches of about the same shape share a plan of cuDNN's attention") {
  const Chosen chosen("cudnn");
  if (!has_cudnn()) return;
  check_attention<bf16>({.rows = Rows::of({100, 98}), .heads = 1, .head_dim = 16, .cudnn = true});
  const size_t before = cudnn_attention_plans();
  check_attention<bf16>({.rows = Rows::of({110, 3}), .heads = 1, .head_dim = 16, .cudnn = true});
  CHECK(cudnn_attention_plans() == before);
  check_attention<bf16>({.rows = Rows::of({200, 3}), .heads = 1, .head_dim = 16, .cudnn = true});
  CHECK(cudnn_attention_plans() == before + 2);
}

TEST_CASE("cuda: by itself only the forward is cuDNN's, and nothing where it cannot be") {
  const auto taken = []<class T>(T, int64_t head_dim, float dropout) {
    const Case c{Rows::of({9, 4}), 1, head_dim, dropout};
    const Inputs<T> in(c);
    const DeviceValues<T> q(in.q), k(in.k), v(in.v), y(in.q.size());
    const DeviceValues<int32_t> offsets(c.rows.query_offsets), begin(c.rows.key_begin),
        end(c.rows.key_end);
    const DeviceValues<Compute<T>> sums(size_t(c.rows.queries()));
    const DeviceValues<char> memory(1 << 20);
    const AttentionArgs<T> args{q.data(), k.data(),          v.data(),     2,          1,
                                head_dim, offsets.data(),    begin.data(), end.data(), 9,
                                9,        Compute<T>(scale), mask_of(c)};
    const auto scratch = [&](size_t) -> void* { return memory.data(); };
    const TestStream stream;
    CHECK(!cudnn_attention_backward(args, 13, y.data(), sums.data(), q.data(), q.data(), k.data(),
                                    v.data(), scratch, stream));
    const bool done = cudnn_attention_forward(args, y.data(), sums.data(), scratch, stream);
    check_cuda(cudaStreamSynchronize(stream), "test");
    return done;
  };
  CHECK(!taken(1.0f, 64, 0));
  CHECK(!taken(1.0, 64, 0));
  CHECK(!taken(bf16(1.0f), 5, 0));
  CHECK(!taken(bf16(1.0f), 64, 0.1f));
  {
    const Chosen chosen("own");
    CHECK(!taken(bf16(1.0f), 64, 0));
  }
  {
    const Chosen chosen("cudnn");
    if (!has_cudnn()) return;
  }
  CHECK(taken(bf16(1.0f), 64, 0));
  CHECK(taken(f16(1.0f), 64, 0));
}

TEST_CASE("cuda: asking for cuDNN's attention where it cannot be is an error that says why") {
  const auto message = [](const Case& c) { return refusal<bf16>(c); };
  {
    const Chosen chosen("flash");
    CHECK(refusal<float>({.rows = Rows::of({4}), .heads = 1, .head_dim = 64, .cudnn = true}) ==
          "attention: MINIM_ATTENTION is \"flash\", it must be own, cudnn or auto");
  }
  const Chosen chosen("cudnn");
  if (!has_cudnn()) return;
  CHECK(refusal<float>({.rows = Rows::of({4}), .heads = 1, .head_dim = 64, .cudnn = true}) ==
        "attention: MINIM_ATTENTION=cudnn, but it has none for f32");
  CHECK(message({.rows = Rows::of({4}), .heads = 1, .head_dim = 60, .cudnn = true}) ==
        "attention: MINIM_ATTENTION=cudnn, but head_dim is 60, it must be a multiple of 8");
  CHECK(message(
            {.rows = Rows::of({4}), .heads = 1, .head_dim = 64, .dropout = 0.1f, .cudnn = true}) ==
        "attention: MINIM_ATTENTION=cudnn, but it draws other dropout masks than ours");
}

}  // namespace
}  // namespace minim::cuda
