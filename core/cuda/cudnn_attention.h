#pragma once

#include <cstddef>
#include <functional>

#include "core/cuda/attention.h"

// cuDNN's fused attention in place of our own, chosen when the program runs.
//
// It is taken for f16 and bf16 without dropout, with a head_dim that is a multiple of 8, where
// cuDNN 9 is found (see cudnn_library.h) and has an engine for the device and the shape; with
// dropout never, since cuDNN draws other masks. The forward's results are those of attention.h up
// to rounding, so either backward goes with either forward. By itself only the forward is taken:
// cuDNN adds up dq in no fixed order, and two runs of a training would differ.
// MINIM_ATTENTION=cudnn takes cuDNN for both, and is an error where that cannot be;
// MINIM_ATTENTION=own takes it for neither.
namespace minim::cuda {

// Device memory for what cuDNN keeps between its kernels, at a multiple of 256 bytes, valid for
// work that the stream is given before it is used again.
using Scratch = std::function<void*(size_t bytes)>;

// As attention_forward, if cuDNN is to do it: returns false, having done nothing, if it is not.
// args.max_queries and args.max_keys must be at least the longest sequence's here.
template <class T>
bool cudnn_attention_forward(const AttentionArgs<T>& args, T* y, Compute<T>* log_sum_exp,
                             const Scratch& scratch, cudaStream_t stream);

// As attention_backward, likewise.
template <class T>
bool cudnn_attention_backward(const AttentionArgs<T>& args, int64_t key_rows, const T* y,
                              const Compute<T>* log_sum_exp, const T* dy, T* dq, T* dk, T* dv,
                              const Scratch& scratch, cudaStream_t stream);

// Plans that were made so far on this thread's device, one for each shape up to rounding; for
// tests.
size_t cudnn_attention_plans();

}  // namespace minim::cuda
