#pragma once

#include "nn/linear.h"

namespace minim::nn {

// Multi-head self-attention within the sequences of a packed batch; dropout on the probabilities.
class MultiHeadSelfAttention : public Module {
 public:
  // Throws unless heads divides dim.
  MultiHeadSelfAttention(int64_t dim, int64_t heads, float dropout_p, Scope at = Scope())
      : Module(at),
        heads(heads),
        dropout_p(dropout_p),
        q_lin(dim, dim, at / "q_lin"),
        k_lin(dim, dim, at / "k_lin"),
        v_lin(dim, dim, at / "v_lin"),
        out_lin(dim, dim, at / "out_lin") {
    check(heads > 0 && dim % heads == 0, "attention: {} heads do not divide dim {}", heads, dim);
  }

  // Attention output of `queries`, a subset of the rows of x.   queries: [query rows, dim],
  // x: [tokens, dim], y: [query rows, dim]
  Tensor forward(const Tensor& queries, const Tensor& x, const AttentionRows& rows) const {
    return out_lin.forward(attention(q_lin.forward(queries), k_lin.forward(x), v_lin.forward(x),
                                     rows, heads, training() ? dropout_p : 0.0f, generator()));
  }

  int64_t heads;
  float dropout_p;
  Linear q_lin, k_lin, v_lin, out_lin;
};

}  // namespace minim::nn
