#pragma once

#include <mutex>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "tests/cuda_emulator/findings.h"
#include "tests/cuda_emulator/work.h"

// What the files that define the runtime's calls share.
namespace minim::emulator {

// One call of the runtime: others wait, and it fails at once where the device is gone.
class Call {
 public:
  cudaError_t error() const { return error_; }

 private:
  std::lock_guard<std::recursive_mutex> lock_{runtime_mutex()};
  cudaError_t error_ = context_error();
};

void count_synchronisation();
void count_allocation();

std::vector<std::string> live_streams();
std::vector<std::string> live_graphs();
void reset_events();
void reset_graphs();
void reset_attributes();

}  // namespace minim::emulator
