#include <algorithm>
#include <vector>

#include <doctest/doctest.h>

#include "tests/core/cuda/attention_cases.h"

// Attention on the device equals core/attention.h's on the CPU in double, given the same numbers.
namespace minim::cuda {
namespace {

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

}  // namespace
}  // namespace minim::cuda
