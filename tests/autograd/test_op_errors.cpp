// What operations say about inputs that do not fit, and how they treat inputs of no elements.
#include <doctest/doctest.h>

#include "autograd/ops.h"

namespace minim {
namespace {

Tensor zeros(const Shape& shape, DType dtype = DType::f32) {
  return Tensor::zeros(shape, dtype);
}

TEST_CASE("element-wise operations name the operation, the shapes and the dtypes") {
  CHECK_THROWS_WITH_AS(add(zeros({2, 3}), zeros({4})),
                       "add: shapes [2, 3] and [4] do not broadcast", Error);
  CHECK_THROWS_WITH_AS(mul(zeros({2}), zeros({2}, DType::f64)),
                       "mul: dtypes f32 and f64 differ; convert one with to()", Error);
  CHECK_THROWS_WITH_AS(gelu(zeros({2}, DType::i32)), "gelu: needs f32, f64, f16 or bf16, got i32",
                       Error);
  CHECK_THROWS_WITH_AS(where(zeros({2}), zeros({2}), zeros({2})),
                       "where: the condition must be bool, got f32", Error);
  CHECK_THROWS_WITH_AS(masked_fill(zeros({2}), zeros({3, 2}, DType::boolean), 0),
                       "masked_fill: mask [3, 2] does not broadcast to [2]", Error);
  CHECK_THROWS_WITH_AS(add_into(zeros({2}), zeros({3})), "add_into: shape [3] does not fit [2]",
                       Error);
  Generator generator;
  CHECK_THROWS_WITH_AS(dropout(zeros({2}), 1.5f, generator),
                       "dropout: p = 1.5 must lie between 0 and 1", Error);
}

TEST_CASE("reductions name the dim") {
  CHECK_THROWS_WITH_AS(sum(zeros({2, 3}), {2}), "sum: dim 2 is out of range for shape [2, 3]",
                       Error);
  CHECK_THROWS_WITH_AS(mean(zeros({2, 3}), {1, -1}), "mean: dim -1 of shape [2, 3] is named twice",
                       Error);
  CHECK_THROWS_WITH_AS(max(zeros({2, 0}), 1), "max: dim 1 of shape [2, 0] is empty", Error);
  CHECK_THROWS_WITH_AS(softmax(zeros({2}), 1), "softmax: dim 1 is out of range for shape [2]",
                       Error);
}

TEST_CASE("views say what does not fit") {
  const Tensor x = zeros({2, 3});
  CHECK_THROWS_WITH_AS(reshape(x, {4, -1}), "reshape: [2, 3] does not fit into [4, -1]", Error);
  CHECK_THROWS_WITH_AS(reshape(x, {-1, -1}),
                       "reshape: shape [-1, -1] has a negative extent (only one may be -1)", Error);
  CHECK_THROWS_WITH_AS(transpose(x, 0, 2), "transpose: dim 2 is out of range for shape [2, 3]",
                       Error);
  CHECK_THROWS_WITH_AS(permute(x, {0, 0}), "permute: dim 0 of shape [2, 3] is named twice", Error);
  CHECK_THROWS_WITH_AS(expand(x, {2, 4}), "expand: [2, 3] does not broadcast to [2, 4]", Error);
  CHECK_THROWS_WITH_AS(slice(x, 0, 1, 3), "slice: 1 to 3 does not lie within dim 0 of shape [2, 3]",
                       Error);
  CHECK_THROWS_WITH_AS(slice(x, 0, 0, 2, 0), "slice: step 0 must be positive", Error);
  CHECK_THROWS_WITH_AS(select(x, 1, 3), "select: index 3 is out of range for dim 1 of shape [2, 3]",
                       Error);
}

TEST_CASE("joining and indexing check each part and each index") {
  const Tensor x = zeros({2, 3});
  CHECK_THROWS_WITH_AS(concat({}), "concat: needs at least one tensor", Error);
  CHECK_THROWS_WITH_AS(concat({x, zeros({2, 4})}),
                       "concat: shapes [2, 3] and [2, 4] differ in more than dim 0", Error);
  CHECK_THROWS_WITH_AS(stack({x, zeros({2})}), "stack: shapes [2, 3] and [2] differ", Error);
  CHECK_THROWS_WITH_AS(
      index_select(x, 0, Tensor::from({0, 2}, {2})),
      "index_select: index 2 at position 1 is out of range for dim 0 of shape [2, 3] (extent 2)",
      Error);
  CHECK_THROWS_WITH_AS(
      gather(x, 1, Tensor::from({0, -1}, {2, 1})),
      "gather: index -1 at position 1 is out of range for dim 1 of shape [2, 3] (extent 3)", Error);
  CHECK_THROWS_WITH_AS(embedding(x, Tensor::from({1, 2}, {2})),
                       "embedding: id 2 at position 1 is outside a table of 2 rows", Error);
  CHECK_THROWS_WITH_AS(embedding(x, Tensor::from({1}, {1}), 2),
                       "embedding: padding_idx 2 is outside a table of 2 rows", Error);
}

TEST_CASE("matrix operations show both shapes") {
  CHECK_THROWS_WITH_AS(linear(zeros({2, 5}), zeros({8, 4})),
                       "linear: input [2, 5] does not fit weight [8, 4] (last dim must be 4)",
                       Error);
  CHECK_THROWS_WITH_AS(linear(zeros({2, 4}), zeros({8, 4}), zeros({4})),
                       "linear: bias [4] does not fit weight [8, 4]", Error);
  CHECK_THROWS_WITH_AS(matmul(zeros({2, 3}), zeros({4, 5})),
                       "matmul: shapes [2, 3] and [4, 5] do not fit (3 columns, 4 rows)", Error);
  CHECK_THROWS_WITH_AS(
      layer_norm(zeros({2, 3}), zeros({4}), zeros({4}), 1e-5),
      "layer_norm: input [2, 3] does not fit weight [4] (last dim must be the weight's)", Error);
}

Tensor attend(const std::vector<int>& offsets, const std::vector<int>& begin,
              const std::vector<int>& end, int64_t heads = 1) {
  const Tensor x = zeros({5, 2});
  const auto n = int64_t(begin.size());
  Generator generator;
  return attention(
      x, x, x, {Tensor::from(offsets, {n + 1}), Tensor::from(begin, {n}), Tensor::from(end, {n})},
      heads, 0, generator);
}

TEST_CASE("attention checks every row it will read or write") {
  CHECK(attend({0, 2, 5}, {0, 3}, {2, 5}).shape() == Shape{5, 2});
  CHECK(attend({0, 2, 5}, {0, 0}, {5, 0}).shape() == Shape{5, 2});
  CHECK_THROWS_WITH_AS(attend({0, 2, 4}, {0, 2}, {2, 4}),
                       "attention: query_offsets run from 0 to 4, the queries have 5 rows", Error);
  CHECK_THROWS_WITH_AS(attend({0, 2, 5}, {0, 2}, {2, 6}),
                       "attention: sequence 1 has queries 2..5 and keys 2..6 of 5 rows", Error);
  CHECK_THROWS_WITH_AS(attend({0, 2, 5}, {0, 1}, {2, 5}),
                       "attention: sequence 1 has keys 1..5, but rows before 2 are keys of another",
                       Error);
  CHECK_THROWS_WITH_AS(attend({0, 5}, {0}, {5}, 3), "attention: 3 heads do not divide dim 2",
                       Error);
}

TEST_CASE("losses check their targets") {
  CHECK_THROWS_WITH_AS(mse_loss(zeros({2}), zeros({3})),
                       "mse_loss: target [3] must have the input's shape [2]", Error);
  CHECK_THROWS_WITH_AS(cross_entropy(zeros({2, 3}), Tensor::from({0, 3}, {2})),
                       "cross_entropy: target 3 of row 1 is outside the 3 classes", Error);
  CHECK_THROWS_WITH_AS(cross_entropy(zeros({2, 3}), Tensor::from({0}, {1})),
                       "cross_entropy: target [1] does not fit logits [2, 3] (one class per row)",
                       Error);
  CHECK_THROWS_WITH_AS(cross_entropy(zeros({2, 3}), zeros({2})),
                       "cross_entropy: needs i32 or i64, got f32", Error);
}

TEST_CASE("linear without inputs is its bias") {
  Tensor bias = Tensor::from({1.0f, 2.0f}, {2});
  bias.set_requires_grad();
  const Tensor y = linear(zeros({3, 0}), zeros({2, 0}), bias);
  CHECK(y.to_vector<float>() == std::vector<float>{1, 2, 1, 2, 1, 2});
  sum(y).backward();
  CHECK(bias.grad().to_vector<float>() == std::vector<float>{3, 3});
  CHECK(linear(zeros({3, 0}), zeros({2, 0})).to_vector<float>() == std::vector<float>(6, 0));
}

TEST_CASE("dropout moves its generator by the blocks it used") {
  Generator generator{.seed = 1, .offset = 5};
  const Tensor x = Tensor::full({3, 3}, 1);
  const Tensor y = dropout(x, 0.5f, generator);
  CHECK(generator.offset == 7);
  const DropoutMask mask(0.5f, 1, 5);
  for (int64_t i = 0; i < 9; ++i)
    CHECK(y.data<float>()[i] == mask(i));
  CHECK(dropout(x, 0, generator).is_same(x));
  CHECK(generator.offset == 7);
}

}  // namespace
}  // namespace minim
