#pragma once

#include <compare>
#include <memory>
#include <string>
#include <vector>

#include "core/cuda/cudnn_library.h"
#include "core/dtype.h"

namespace minim::cuda {

// What a plan of cuDNN for attention is made for. Lengths and the number of sequences are upper
// bounds: those of a batch are read on the device.
struct CudnnAttentionShape {
  DType dtype;
  bool backward;
  int64_t sequences, heads, head_dim, queries, keys;

  auto operator<=>(const CudnnAttentionShape&) const = default;
  // "attention backward: bf16, up to 8 sequences of 512 queries and 512 keys, 12 heads of 64".
  std::string describe() const;
};

// The tensors of a plan, by the numbers under which cuDNN is given their addresses. q, y, dy and dq
// share their offsets, as do k, v, dk and dv; offsets are counted in elements.
enum CudnnTensor : int64_t {
  query_offsets_tensor = 1,  // i64 [sequences + 1]
  key_offsets_tensor,
  log_sum_exp_offsets_tensor,
  query_lengths_tensor,  // i32 [sequences]
  key_lengths_tensor,
  scale_tensor,  // one f32 of the host
  q_tensor,
  k_tensor,
  v_tensor,
  y_tensor,
  log_sum_exp_tensor,
  dy_tensor,
  dq_tensor,
  dk_tensor,
  dv_tensor,
};

// cuDNN's fused attention over packed sequences ("ragged" there), with the softmax's statistics as
// attention.h defines them: a graph of one operation, and the first engine that can run it and does
// not say that its results vary.
class CudnnAttentionPlan {
 public:
  // For the device of a handle; throws Error with cuDNN's reason if no engine can do it.
  CudnnAttentionPlan(const CudnnLibrary& library, cudnnHandle_t handle,
                     const CudnnAttentionShape& shape);
  CudnnAttentionPlan(const CudnnAttentionPlan&) = delete;  // descriptors refer to its name
  CudnnAttentionPlan& operator=(const CudnnAttentionPlan&) = delete;

  struct Binding {
    int64_t tensor;
    const void* data;
  };
  // Gives the work to the handle's stream. The workspace begins at a multiple of 256 bytes.
  void run(cudnnHandle_t handle, const std::vector<Binding>& bindings, void* workspace) const;
  size_t workspace_bytes() const { return workspace_bytes_; }

  // Engines that cuDNN proposes for a device that need not exist, which a text in JSON describes.
  static int64_t engines_for(const CudnnLibrary& library, const std::string& device,
                             const CudnnAttentionShape& shape);

 private:
  const CudnnLibrary& library_;
  std::string what_;
  std::unique_ptr<CudnnDescriptor> plan_;
  size_t workspace_bytes_ = 0;
};

}  // namespace minim::cuda
