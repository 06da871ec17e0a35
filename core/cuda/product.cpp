#include "core/product.h"

#include <array>
#include <memory>
#include <mutex>

#include "core/cuda/device.h"
#include "core/cuda/gemm.h"
#include "core/memory.h"

namespace minim::cuda {

namespace {

// The library of a device, made when it is first needed and kept to the end of the program.
struct Library {
  std::mutex mutex;
  std::unique_ptr<Blas> blas;
};

Library& library(Device device) {
  static auto* all = new std::array<Library, Device::most_cuda>;
  return (*all)[size_t(device.index())];
}

}  // namespace

template <class T>
void multiply(Device device, const Product<T>& product) {
  const cudaStream_t on = stream(device);
  Library& kept = library(device);
  const std::lock_guard lock(kept.mutex);
  if (!kept.blas) {
    void* workspace = memory::allocate(Blas::usual_workspace, memory::Category::workspace, device);
    kept.blas = std::make_unique<Blas>(on, workspace, Blas::usual_workspace);
  }
  kept.blas->gemm(product);
}

template void multiply(Device, const Product<float>&);
template void multiply(Device, const Product<double>&);
template void multiply(Device, const Product<f16>&);
template void multiply(Device, const Product<bf16>&);

}  // namespace minim::cuda
