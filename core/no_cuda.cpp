#include "core/backend.h"
#include "core/error.h"

// Stands in for core/cuda/ in a build without CUDA.
namespace minim {

int cuda::device_count() {
  return 0;
}

std::string cuda::why_unavailable() {
  return "this build has no CUDA; configure it with -Dcuda=enabled";
}

const Backend& cuda_backend() {
  fail("device: {}", cuda::why_unavailable());
}

}  // namespace minim
