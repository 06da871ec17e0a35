#pragma once

#include <cstdint>

#include "optim/adam_corrections.h"
#include "optim/code_map.h"
#include "optim/optimizer.h"

// The step of an 8-bit Adam; private to optim/.
namespace minim::optim {

// One of the two moments of a parameter.
struct CodedMoment {
  const Tensor &codes, &absmax;  // u8 and, for each block, f32
  const Tensor& values;          // f32 [256]
  const Tensor& search;          // i32 [65536], of the map; on a CUDA device alone
  const CodeMap& map;
};

// The numbers of one step of one parameter.
struct Adam8bitNumbers {
  int64_t block;
  AdamCorrections corrections;  // and the betas
  double decay;                 // 1 - lr * weight_decay
  double eps;
  bool guarded;           // elements whose gradient is not sound are left alone
  const Tensor& skipped;  // i64 [1], where a device counts those
};

// One step of one parameter; returns the number of elements that were left alone, where it is known
// at once.
int64_t adam8bit_update(const Update& u, const CodedMoment& first, const CodedMoment& second,
                        const Adam8bitNumbers& numbers);

}  // namespace minim::optim
