#include <cstdlib>
#include <limits>
#include <string>

#include <doctest/doctest.h>

#include "tests/core/cuda/attention_cases.h"

// cuDNN's attention equals core/attention.h's on the CPU, and is taken where it should be.
namespace minim::cuda {
namespace {

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
        "attention: MINIM_ATTENTION=cudnn, but cuDNN has none for f32");
  CHECK(message({.rows = Rows::of({4}), .heads = 1, .head_dim = 60, .cudnn = true}) ==
        "attention: MINIM_ATTENTION=cudnn, but head_dim is 60, it must be a multiple of 8");
  CHECK(message(
            {.rows = Rows::of({4}), .heads = 1, .head_dim = 64, .dropout = 0.1f, .cudnn = true}) ==
        "attention: MINIM_ATTENTION=cudnn, but cuDNN draws other dropout masks than ours");
}

}  // namespace
}  // namespace minim::cuda
