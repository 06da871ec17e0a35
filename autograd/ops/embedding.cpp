#include "autograd/ops.h"
#include "autograd/ops/add_rows.h"
#include "autograd/ops/checked_indices.h"
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

Tensor embedding(const Tensor& any_weight, const Tensor& any_ids,
                 std::optional<int64_t> padding_idx) {
  check(any_weight.rank() == 2, "embedding: weight {} must be [rows, dim]", any_weight.shape());
  check_same_device("embedding", any_weight, any_ids);
  const Tensor weight = any_weight.contiguous();
  const int64_t rows = weight.size(0), dim = weight.size(1), tokens = any_ids.numel();
  check(!padding_idx || (*padding_idx >= 0 && *padding_idx < rows),
        "embedding: padding_idx {} is outside a table of {} rows", padding_idx.value_or(0), rows);
  Shape shape = any_ids.shape();
  shape.push_back(dim);
  const Tensor y = weight.new_empty(shape);
  const Tensor ids =
      checked_indices("embedding", any_ids, rows, {}, [rows](int64_t id, int64_t token) {
        return fmt::format("embedding: id {} at position {} is outside a table of {} rows", id,
                           token, rows);
      });
  dispatch_index(ids.dtype(), "embedding", [&]<class Id>() {
    dispatch_float(weight.dtype(), "embedding", [&]<class T>() {
      launch_rows(weight.device(), tokens, dim,
                  EmbeddingForward<T, Id>{y.data<T>(), weight.data<T>(), ids.data<Id>(), dim});
    });
  });
  return record("embedding", y, {any_weight, any_ids},
                [ids = Saved(ids), rows, dim,
                 skip = padding_idx.value_or(-1)](const Tensor& any_dy) -> Tensors {
                  const Tensor dy = any_dy.contiguous();
                  const Tensor dweight = dy.new_zeros({rows, dim}, compute_dtype(dy.dtype()));
                  add_rows(dweight, dy, ids.get(), skip);
                  return {convert(dweight, dy.dtype()), Tensor()};
                });
}

}  // namespace minim
