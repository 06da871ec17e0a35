#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include <cudnn_graph.h>

// A stand-in for the part of cuDNN's graph interface that attention uses: defined against the
// library's own header, run as work on the emulated device's streams. It knows the two operations
// of attention on packed tensors and is as particular about descriptors as the library is; what it
// computes comes from the finalized graph alone.
namespace minim::emulator {

// What a tensor of an attention is to it.
enum class Role { q, k, v, y, sums, scale, query_lengths, key_lengths, dy, dq, dk, dv };

struct CudnnTensorLayout {
  int64_t id = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::array<int64_t, 4> dims{}, strides{};
  int64_t alignment = 0;
  bool by_value = false;
  int64_t offsets = 0;  // id of the tensor of ragged offsets, of this type; 0: none
  cudnnDataType_t offsets_type = CUDNN_DATA_INT64;
};

// A finalized operation: [batch, heads, rows, head_dim] each.
struct CudnnAttention {
  bool backward = false;
  std::map<Role, CudnnTensorLayout> tensors;
};

// Bytes of one element; 0 for types that the stand-in does not know.
size_t bytes_of(cudnnDataType_t type);

// Computes the operation with the addresses of its tensors, checking every row that it touches.
void run_attention(const CudnnAttention& attention, const std::map<int64_t, void*>& data,
                   float scale);

}  // namespace minim::emulator
