#include "autograd/ops.h"
#include "autograd/ops/checks.h"
#include "core/launch.h"

namespace minim {

// y[token] = weight[ids[token]].   weight: [rows, dim], y: [tokens, dim]
template <class T, class Id>
struct EmbeddingForward {
  T* y;
  const T* weight;
  const Id* ids;
  int64_t dim;

  template <class Group>
  HD void operator()(const Group& g, int64_t token) const {
    const T* from = weight + int64_t(ids[token]) * dim;
    T* to = y + token * dim;
    g.each(dim, [&](int64_t i) { to[i] = from[i]; });
  }
};

// Adds dy to a block of columns of dweight, token by token: the order of the sums is fixed.
template <class T, class Id>
struct EmbeddingBackward {
  static constexpr int64_t block = 64;
  Compute<T>* dweight;
  const T* dy;
  const Id* ids;
  int64_t tokens, dim, padding_idx;

  template <class Group>
  HD void operator()(const Group& g, int64_t index) const {
    const int64_t first = index * block;
    const int64_t width = first + block < dim ? block : dim - first;
    for (int64_t token = 0; token < tokens; ++token) {
      if (int64_t(ids[token]) == padding_idx) continue;
      Compute<T>* to = dweight + int64_t(ids[token]) * dim + first;
      const T* from = dy + token * dim + first;
      g.each(width, [&](int64_t i) { to[i] += Compute<T>(from[i]); });
    }
  }
};

Tensor embedding(const Tensor& any_weight, const Tensor& any_ids,
                 std::optional<int64_t> padding_idx) {
  check(any_weight.rank() == 2, "embedding: weight {} must be [rows, dim]", any_weight.shape());
  check_same_device("embedding", any_weight, any_ids);
  const Tensor weight = any_weight.contiguous(), ids = any_ids.contiguous();
  const int64_t rows = weight.size(0), dim = weight.size(1), tokens = ids.numel();
  check(!padding_idx || (*padding_idx >= 0 && *padding_idx < rows),
        "embedding: padding_idx {} is outside a table of {} rows", padding_idx.value_or(0), rows);
  Shape shape = ids.shape();
  shape.push_back(dim);
  const Tensor y = weight.new_empty(shape);
  const Tensor host_ids = on_host(ids);
  dispatch_index(ids.dtype(), "embedding", [&]<class Id>() {
    const auto values = host_ids.values<Id>();
    for (int64_t t = 0; t < tokens; ++t)
      check(values[size_t(t)] >= 0 && values[size_t(t)] < rows,
            "embedding: id {} at position {} is outside a table of {} rows", values[size_t(t)], t,
            rows);
    dispatch_float(weight.dtype(), "embedding", [&]<class T>() {
      launch_rows(weight.device(), tokens, dim,
                  EmbeddingForward<T, Id>{y.data<T>(), weight.data<T>(), ids.data<Id>(), dim});
    });
  });
  return record("embedding", y, {any_weight, any_ids},
                [ids = Saved(ids), rows, dim, tokens,
                 skip = padding_idx.value_or(-1)](const Tensor& any_dy) -> Tensors {
                  const Tensor dy = any_dy.contiguous();
                  const Tensor dweight = dy.new_zeros({rows, dim}, compute_dtype(dy.dtype()));
                  dispatch_index(ids.get().dtype(), "embedding", [&]<class Id>() {
                    dispatch_float(dy.dtype(), "embedding", [&]<class T>() {
                      using Kernel = EmbeddingBackward<T, Id>;
                      launch_rows(dy.device(), (dim + Kernel::block - 1) / Kernel::block,
                                  tokens * Kernel::block,
                                  Kernel{dweight.data<Compute<T>>(), dy.data<T>(),
                                         ids.get().data<Id>(), tokens, dim, skip});
                    });
                  });
                  return {convert(dweight, dy.dtype()), Tensor()};
                });
}

}  // namespace minim
