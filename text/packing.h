#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/packed_batch.h"
#include "core/tensor.h"
#include "text/sequences.h"

namespace minim::text {

using minim::PackedBatch;

// A tokenized data set.
struct Examples {
  Sequences sequences = {};
  // Class ids [n] i64, or targets [n] or [n, labels] f32; may be undefined.
  Tensor labels = {};

  // Tokens of each sequence.
  std::vector<int64_t> lengths() const;
};

// Puts sequences end to end. Throws for none at all and for one without tokens.
PackedBatch pack(std::span<const TokenSequence> sequences, const Tensor& labels = Tensor());

// The same for some rows of a data set, in that order, with their labels.
PackedBatch pack(const Examples& examples, std::span<const int64_t> rows);

// Rows of labels [n] or [n, labels], in that order; undefined ones stay undefined.
Tensor select_labels(const Tensor& labels, std::span<const int64_t> rows);

struct PaddedInput {
  Tensor input_ids = {};       // [batch, length], integers
  Tensor attention_mask = {};  // [batch, length] of 0 and 1; may be undefined
  Tensor token_type_ids = {};  // [batch, length]; may be undefined
  Tensor labels = {};          // [batch] or [batch, labels]; may be undefined
};

// Packs padded input. Tokens with mask 0 are dropped, the others keep their places as positions, so
// the result of a model is that of the padded run. The first token of a row, which classifiers
// read, is kept even if masked, but then no token attends to it. Without a mask, tokens equal to
// `pad_token_id` are masked and a notice says so. Throws for a mask value other than 0 and 1 and
// for a row without a single 1, naming the row.
PackedBatch pack_padded(const PaddedInput& padded, int32_t pad_token_id,
                        std::vector<std::string>& notices);

}  // namespace minim::text
