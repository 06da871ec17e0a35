#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "optim/code_map.h"
#include "optim/optimizer.h"

namespace minim::optim {

// What the codes of the two moments stand for.
struct MomentMaps {
  const CodeMap& exp_avg;
  const CodeMap& exp_avg_sq;
};
// The maps under these options of an 8-bit Adam.
MomentMaps moment_maps(std::string_view behaviour, std::string_view code_map);

// Adam whose two moments are kept in one byte per weight each (Dettmers et al., "8-bit optimizers
// via block-wise quantization", 2022): blocks of codes with a scale, as quantize_blockwise() makes
// them, with a signed map for exp_avg and one without sign for exp_avg_sq. A step takes a block's
// moments out of their codes, updates them and the weights in f32 as AdamW does, and codes the
// moments again; so the codes' error touches only what the next step reads. Weight decay is
// decoupled under both names, as in bitsandbytes.
//
// Behaviours
//   minim               A positive second moment never gets the code of zero. Where it does, while
//                       the first moment does not, a gradient of exactly zero leaves a step of
//                       lr * m / eps: thousands of times the rate. Ties go to the even code.
//                       Elements whose gradient is not finite, or above 1e18 so that its square
//                       would not be, are left alone, weight and moments, and counted.
//   bitsandbytes        Code for code what the library's update does with its device-independent
//                       quantiser: its table, ties to the lower code, none of the above.
//   bitsandbytes_floor  The same, save that a positive second moment never gets the code of zero.
template <bool adamw>
struct BasicAdam8bitRule {
  static constexpr std::string_view name = adamw ? "adamw8bit" : "adam8bit";
  static constexpr bool batches = true;

  struct Options {
    double lr = 1e-3;
    double beta1 = 0.9, beta2 = 0.999;
    double eps = 1e-8;
    double weight_decay = adamw ? 1e-2 : 0.0;
    int64_t block_size = 256;      // a power of two from 64 to 4096
    int64_t min_8bit_size = 4096;  // parameters with fewer elements keep their moments in f32
    // So do those whose names hold one of these texts, separated by "|". "embeddings" is what
    // Hugging Face's Trainer does under bitsandbytes.
    std::string keep_f32 = {};
    std::string code_map = "dynamic";  // any of code_map_names(); the same for all groups
    std::string behaviour = "minim";   // likewise
  };
  struct State {
    Tensor exp_avg, exp_avg_sq;                // u8, or f32 where they are kept so
    Tensor exp_avg_absmax, exp_avg_sq_absmax;  // f32 [blocks]; undefined where there are no codes
    int64_t step = 0;                          // updates of this parameter
    int64_t skipped = 0;   // elements left alone for their gradient, since made or loaded
    Tensor skipped_there;  // i64 [1], on a CUDA device: their number there
  };

  static void list_options(Options& options, OptionFields& fields);
  static void list_state(State& state, const ParameterSpec& parameter, const Options& options,
                         StateFields& fields);
  static void validate(const Options& options);
  void shared_state(StateFields& fields);
  void update(const Update& u, State& state, const Options& options);
  static void fetch(State& state);

  // What the codes of exp_avg and exp_avg_sq stand for; f32 [256] each, part of the state.
  Tensor exp_avg_values, exp_avg_sq_values;
  Tensor exp_avg_search, exp_avg_sq_search;  // of CodeMap, on a CUDA device; i32 [65536]
  std::string maps = {};  // behaviour and code map that they are of; empty before the first step
};

// The two differ in name and in their default of weight_decay alone.
using Adam8bitRule = BasicAdam8bitRule<false>;
using AdamW8bitRule = BasicAdam8bitRule<true>;
using Adam8bit = Optimizer<Adam8bitRule>;
using AdamW8bit = Optimizer<AdamW8bitRule>;

}  // namespace minim::optim
