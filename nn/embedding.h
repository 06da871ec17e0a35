#pragma once

#include <optional>

#include "autograd/ops.h"
#include "nn/module.h"

namespace minim::nn {

// Rows of a table.   ids: any shape, i32 or i64; y: [.., dim]
class Embedding : public Module {
 public:
  // The row padding_idx starts as zeros and receives no gradient. Without an Init the others are
  // normal, as everywhere.
  Embedding(int64_t rows, int64_t dim, Scope at = Scope(), std::optional<int64_t> padding_idx = {},
            std::optional<Init> init = {})
      : Module(at),
        weight(at.parameter(
            "weight", {rows, dim},
            init.value_or(Init::normal(at.options().initializer_range)).zero_row(padding_idx))),
        padding_idx(padding_idx) {}

  Tensor forward(const Tensor& ids) const { return embedding(weight, ids, padding_idx); }

  Tensor weight;
  std::optional<int64_t> padding_idx;
};

}  // namespace minim::nn
