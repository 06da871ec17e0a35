#pragma once

#include <string>

#include "nn/attention.h"
#include "nn/feed_forward.h"
#include "nn/layer_norm.h"

namespace minim::nn {

// Sizes and rates of one block.
struct TransformerBlockOptions {
  int64_t dim = 768, heads = 12, hidden_dim = 3072;
  float dropout = 0.1f, attention_dropout = 0.1f;
  std::string activation = "gelu";
  double layer_norm_eps = 1e-12;
};

// Attention and feed-forward, each with a residual and then a norm (post-LN; Vaswani et al., 2017),
// with DistilBERT's names.
class TransformerBlock : public Module {
 public:
  explicit TransformerBlock(const TransformerBlockOptions& o, Scope at = Scope())
      : Module(at),
        attention(o.dim, o.heads, o.attention_dropout, at / "attention"),
        sa_layer_norm(o.dim, at / "sa_layer_norm", o.layer_norm_eps),
        ffn(o.dim, o.hidden_dim, o.activation, o.dropout, at / "ffn"),
        output_layer_norm(o.dim, at / "output_layer_norm", o.layer_norm_eps) {}

  // Output rows of `queries`, a subset of the rows of x.   queries, y: [query rows, dim],
  // x: [tokens, dim]
  Tensor forward(const Tensor& queries, const Tensor& x, const AttentionRows& rows) const {
    const Tensor h = sa_layer_norm.forward(attention.forward(queries, x, rows) + queries);
    return output_layer_norm.forward(ffn.forward(h) + h);
  }

  MultiHeadSelfAttention attention;
  LayerNorm sa_layer_norm;
  FeedForward ffn;
  LayerNorm output_layer_norm;
};

}  // namespace minim::nn
