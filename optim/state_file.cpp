#include "optim/state_file.h"

#include "core/safetensors.h"

namespace minim::optim {

void save_state(const AnyOptimizer& optimizer, const std::string& path) {
  const memory::Scope scope(memory::Category::data);
  NamedTensors state = optimizer.state_dict();
  for (NamedTensor& entry : state)
    entry.tensor = entry.tensor.to(Device::cpu());
  write_safetensors(path, state, optimizer.metadata());
}

void load_state(AnyOptimizer& optimizer, const std::string& path, OtherOptions other) {
  const memory::Scope scope(memory::Category::data);
  const Checkpoint file = read_safetensors(path);
  const NamedTensors tensors = file.named_tensors();
  try {
    optimizer.load_state_dict(tensors, file.metadata(), other);
  } catch (const Error& error) {
    fail("{}: {}", path, error.what());
  }
}

}  // namespace minim::optim
