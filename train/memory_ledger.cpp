#include "train/memory_ledger.h"

namespace minim::train {

MemoryLedger::MemoryLedger(const nn::Module& model, const optim::StateSize& optimizer_state)
    : device(model.device()),
      predicted_optimizer_state(optimizer_state.bytes),
      optimizer_state_elements(optimizer_state.elements) {
  for (const NamedTensor& parameter : model.parameters()) {
    predicted_weights += parameter.tensor.bytes();
    parameters += parameter.tensor.numel();
    if (!parameter.tensor.requires_grad()) continue;
    predicted_gradients += parameter.tensor.bytes();
    trained_parameters += parameter.tensor.numel();
  }
}

}  // namespace minim::train
