// No bit of a value or a gradient depends on the number of threads.
#include <cstring>

#include <doctest/doctest.h>

#include "autograd/ops.h"
#include "core/parallel.h"
#include "core/random.h"

namespace minim {
namespace {

// Large enough that every operation has work for several threads.
constexpr int64_t rows = 700, dim = 192, classes = 77;

struct Run {
  Tensor loss;
  Tensors gradients;
};

Run run(int threads) {
  set_thread_count(threads);
  Tensors leaves = {randn({500, dim}, 1), rand({dim}, 2),  randn({dim}, 3),
                    randn({dim, dim}, 4), randn({dim}, 5), randn({classes, dim}, 6)};
  for (Tensor& leaf : leaves)
    leaf.set_requires_grad();
  Tensor ids = Tensor::empty({rows}, DType::i32), labels = Tensor::empty({rows}, DType::i64);
  for (int64_t i = 0; i < rows; ++i) {
    ids.data<int32_t>()[i] = int32_t(i * i % 500);
    labels.data<int64_t>()[i] = i % classes;
  }
  Generator generator{.seed = 9};
  const Tensor x = layer_norm(embedding(leaves[0], ids), leaves[1], leaves[2], 1e-5);
  const AttentionRows packed = {Tensor::from({0, 300, int(rows)}, {3}), Tensor::from({0, 300}, {2}),
                                Tensor::from({300, int(rows)}, {2})};
  const Tensor attended = attention(x, x, x, packed, 4, 0.1f, generator);
  const Tensor h = gelu(linear(dropout(attended, 0.2f, generator), leaves[3], leaves[4]));
  const Tensor logits = matmul(h + x, transpose(leaves[5], 0, 1));
  const Tensor loss =
      cross_entropy(logits, labels) + mean(softmax(logits, 0) * logits) + norm(sum(h * x, {0}));
  loss.backward();
  Run result{loss, {}};
  for (const Tensor& leaf : leaves)
    result.gradients.push_back(leaf.grad());
  return result;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.raw(), b.raw(), size_t(a.bytes())) == 0;
}

TEST_CASE("a step has the same bits with any number of threads, and each time") {
  const int before = thread_count();
  const Run one = run(1);
  for (int threads : {1, 2, 3, 7}) {
    CAPTURE(threads);
    const Run other = run(threads);
    CHECK(same_bits(one.loss, other.loss));
    for (size_t i = 0; i < one.gradients.size(); ++i) {
      CAPTURE(i);
      CHECK(same_bits(one.gradients[i], other.gradients[i]));
    }
  }
  set_thread_count(before);
}

}  // namespace
}  // namespace minim
