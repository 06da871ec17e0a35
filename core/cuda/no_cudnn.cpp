#include <cstdlib>
#include <string_view>

#include "core/cuda/cudnn_attention.h"
#include "core/error.h"

// What a build without cuDNN's headers has in place of cudnn_attention.cpp.

namespace minim::cuda {

namespace {

bool refuse() {
  const char* choice = std::getenv("MINIM_ATTENTION");
  check(choice == nullptr || std::string_view(choice) != "cudnn",
        "attention: MINIM_ATTENTION=cudnn, but this build has no cuDNN; configure it with "
        "-Dcudnn=DIR");
  return false;
}

}  // namespace

template <class T>
bool cudnn_attention_forward(const AttentionArgs<T>&, T*, Compute<T>*, const Scratch&,
                             cudaStream_t) {
  return refuse();
}

template <class T>
bool cudnn_attention_backward(const AttentionArgs<T>&, int64_t, const T*, const Compute<T>*,
                              const T*, T*, T*, T*, const Scratch&, cudaStream_t) {
  return refuse();
}

size_t cudnn_attention_plans() {
  return 0;
}

template bool cudnn_attention_forward(const AttentionArgs<float>&, float*, float*, const Scratch&,
                                      cudaStream_t);
template bool cudnn_attention_backward(const AttentionArgs<float>&, int64_t, const float*,
                                       const float*, const float*, float*, float*, float*,
                                       const Scratch&, cudaStream_t);
template bool cudnn_attention_forward(const AttentionArgs<double>&, double*, double*,
                                      const Scratch&, cudaStream_t);
template bool cudnn_attention_backward(const AttentionArgs<double>&, int64_t, const double*,
                                       const double*, const double*, double*, double*, double*,
                                       const Scratch&, cudaStream_t);
template bool cudnn_attention_forward(const AttentionArgs<f16>&, f16*, float*, const Scratch&,
                                      cudaStream_t);
template bool cudnn_attention_backward(const AttentionArgs<f16>&, int64_t, const f16*, const float*,
                                       const f16*, f16*, f16*, f16*, const Scratch&, cudaStream_t);
template bool cudnn_attention_forward(const AttentionArgs<bf16>&, bf16*, float*, const Scratch&,
                                      cudaStream_t);
template bool cudnn_attention_backward(const AttentionArgs<bf16>&, int64_t, const bf16*,
                                       const float*, const bf16*, bf16*, bf16*, bf16*,
                                       const Scratch&, cudaStream_t);

}  // namespace minim::cuda
