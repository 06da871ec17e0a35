#include "core/backend.h"
#include "core/cuda/graph.h"
#include "core/error.h"
#include "core/product.h"

// Stands in for core/cuda/ in a build without CUDA.
namespace minim {

int cuda::device_count() {
  return 0;
}

bool cuda::is_built() {
  return false;
}

std::string cuda::why_unavailable() {
  return "this build has no CUDA; configure it with -Dcuda=enabled";
}

const Backend& cuda_backend() {
  fail("device: {}", cuda::why_unavailable());
}

cuda::Graph::Graph(Device device, const std::function<void()>&) : device_(device) {
  fail("graph: {}", cuda::why_unavailable());
}

void cuda::Graph::launch() const {
  fail("graph: {}", cuda::why_unavailable());
}

template <class T>
void cuda::multiply(Device, const Product<T>&) {
  fail("multiply: {}", cuda::why_unavailable());
}

template void cuda::multiply(Device, const Product<float>&);
template void cuda::multiply(Device, const Product<double>&);
template void cuda::multiply(Device, const Product<f16>&);
template void cuda::multiply(Device, const Product<bf16>&);

void cuda::copy_within(Device, void*, const void*, size_t) {
  fail("device: {}", cuda::why_unavailable());
}

}  // namespace minim
