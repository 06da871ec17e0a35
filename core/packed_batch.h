#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace minim {

// A batch without padding: the tokens of all sequences end to end. Hidden states are [tokens, dim]
// and attention works per sequence from the offsets.
struct PackedBatch {
  Tensor input_ids;       // [tokens] i32
  Tensor position_ids;    // [tokens] i32, place of each token in its own sequence
  Tensor token_type_ids;  // [tokens] i32: 0 for the first text, 1 for the second; may be undefined
  Tensor offsets;         // [sequences + 1] i32: sequence s is rows offsets[s] .. offsets[s + 1]
  // [sequences] i32: first row of s that may be attended to. Later than offsets[s] only where
  // padded input masks the very token that a classifier reads.
  Tensor key_begin;
  // Class ids [sequences] i64, or targets [sequences] or [sequences, labels] f32; may be undefined.
  Tensor labels;

  int64_t tokens() const { return input_ids.size(0); }
  int64_t sequences() const { return key_begin.size(0); }

  // The batch on a device, by way of pinned memory; does not wait for the device.
  PackedBatch to(Device device) const {
    const auto move = [device](const Tensor& x) { return x.defined() ? x.to(device) : x; };
    return {move(input_ids), move(position_ids), move(token_type_ids),
            move(offsets),   move(key_begin),    move(labels)};
  }
};

}  // namespace minim
