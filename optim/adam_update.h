#pragma once

#include "optim/adamw.h"

// What Adam and AdamW share; private to optim/.
namespace minim::optim {

// One step of one parameter. Decay that is not decoupled is added to the gradient instead.
void adam_update(const Update& u, AdamWRule::State& state, const AdamWRule::Options& options,
                 bool decoupled_decay);

}  // namespace minim::optim
