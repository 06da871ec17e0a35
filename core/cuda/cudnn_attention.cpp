#include "core/cuda/cudnn_attention.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>

#include <fmt/format.h>

#include "core/cuda/cudnn_attention_plan.h"
#include "core/cuda/launch.h"
#include "core/device.h"
#include "core/error.h"

namespace minim::cuda {

namespace {

// Offsets and lengths as cuDNN takes them, at the beginning of the scratch memory.
struct Rows {
  int64_t *query_offsets, *key_offsets, *sum_offsets;  // [sequences + 1]
  int32_t *queries, *keys;                             // [sequences]

  static size_t bytes(int64_t sequences) {
    return (size_t(3 * (sequences + 1) * 8 + 2 * sequences * 4) + 255) / 256 * 256;
  }
  Rows(void* memory, int64_t sequences)
      : query_offsets(static_cast<int64_t*>(memory)),
        key_offsets(query_offsets + sequences + 1),
        sum_offsets(key_offsets + sequences + 1),
        queries(reinterpret_cast<int32_t*>(sum_offsets + sequences + 1)),
        keys(queries + sequences) {}
};

// Sequences past the batch's own are empty.
template <class T>
__global__ void attention_rows_kernel(AttentionArgs<T> args, Rows rows, int64_t sequences) {
  const int64_t s = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (s > sequences) return;
  const int64_t last = args.sequences, own = s < last ? s : last;
  const int64_t key = s < last ? args.key_begin[s] : args.key_end[last - 1];
  rows.query_offsets[s] = args.query_offsets[own] * args.dim();
  rows.sum_offsets[s] = args.query_offsets[own] * args.heads;
  rows.key_offsets[s] = key * args.dim();
  if (s == sequences) return;
  rows.queries[s] = s < last ? args.query_offsets[s + 1] - args.query_offsets[s] : 0;
  rows.keys[s] = s < last ? args.key_end[s] - args.key_begin[s] : 0;
}

// What queries without any key get, of which cuDNN promises nothing: zeros.
template <class T>
__global__ void keyless_queries_kernel(AttentionArgs<T> args, T* rows, Compute<T>* log_sum_exp) {
  const int64_t s = blockIdx.x;
  if (args.key_begin[s] < args.key_end[s]) return;
  const int64_t begin = args.query_offsets[s], end = args.query_offsets[s + 1];
  for (int64_t i = begin * args.dim() + threadIdx.x; i < end * args.dim(); i += blockDim.x)
    rows[i] = T(0.0f);
  if (log_sum_exp == nullptr) return;
  for (int64_t i = begin * args.heads + threadIdx.x; i < end * args.heads; i += blockDim.x)
    log_sum_exp[i] = -std::numeric_limits<Compute<T>>::infinity();
}

// n rounded up by at most an eighth, so that few plans serve many batches.
int64_t round_up(int64_t n, int64_t least) {
  const int64_t step = std::max<int64_t>(least, int64_t(std::bit_floor(uint64_t(n))) / 8);
  return (std::max<int64_t>(n, 1) + step - 1) / step * step;
}

// An emulated build has the functions of its stand-in.
CudnnLibrary find_library() {
#if defined(MINIM_CUDA_EMULATED)
  return {cudnnGetVersion,
          cudnnGetErrorString,
          cudnnGetLastErrorString,
          cudnnCreate,
          cudnnSetStream,
          cudnnBackendCreateDescriptor,
          cudnnBackendDestroyDescriptor,
          cudnnBackendSetAttribute,
          cudnnBackendGetAttribute,
          cudnnBackendFinalize,
          cudnnBackendExecute};
#else
  return load_cudnn();
#endif
}

enum class Choice { automatic, own, cudnn };

Choice choice() {
  const char* text = std::getenv("MINIM_ATTENTION");
  const std::string name = text == nullptr ? "" : text;
  if (name.empty() || name == "auto") return Choice::automatic;
  if (name == "own") return Choice::own;
  check(name == "cudnn", "attention: MINIM_ATTENTION is \"{}\", it must be own, cudnn or auto",
        name);
  return Choice::cudnn;
}

// A plan, or why there is none.
struct Entry {
  std::unique_ptr<CudnnAttentionPlan> plan;
  std::string why_none;
};

// What is kept for a device from its first use to the end of the program.
struct State {
  CudnnLibrary library;
  cudnnHandle_t handle = nullptr;
  std::string why_unusable;
  std::map<CudnnAttentionShape, Entry> plans;
  std::mutex mutex;

  State() {
    try {
      int device = 0, major = 0;
      check_cuda(cudaGetDevice(&device), "attention");
      check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                 "attention");
      check(major >= 8, "attention: cuDNN's needs compute capability 8.0, the device has {}.x",
            major);
      library = find_library();
      library.check(library.create_handle(&handle), "attention");
    } catch (const Error& error) {
      why_unusable = error.what();
    }
  }

  Entry& entry(const CudnnAttentionShape& shape) {
    const auto it = plans.find(shape);
    if (it != plans.end()) return it->second;
    Entry made;
    try {
      made.plan = std::make_unique<CudnnAttentionPlan>(library, handle, shape);
    } catch (const Error& error) {
      made.why_none = error.what();
    }
    return plans.emplace(shape, std::move(made)).first->second;
  }
};

State& state() {
  static std::mutex mutex;
  // Never destroyed: the library may be unloaded before static objects are.
  static auto* states = new std::array<std::unique_ptr<State>, Device::most_cuda>;
  int device = 0;
  check_cuda(cudaGetDevice(&device), "attention");
  const std::lock_guard lock(mutex);
  std::unique_ptr<State>& kept = (*states)[size_t(device)];
  if (!kept) kept = std::make_unique<State>();
  return *kept;
}

// Why cuDNN cannot be given this, whatever the library; "" if it can.
template <class T>
std::string why_not(const AttentionArgs<T>& args, std::initializer_list<const void*> pointers) {
  if (args.dropout.threshold > 0) return "cuDNN draws other dropout masks than ours";
  if (args.head_dim % 8 != 0)
    return fmt::format("head_dim is {}, it must be a multiple of 8", args.head_dim);
  for (const void* p : pointers)
    if (uintptr_t(p) % 16 != 0) return "a tensor does not begin at a multiple of 16 bytes";
  return "";
}

// Calls work(state, plan, shape) if cuDNN is to do it.
template <class T, class Work>
bool with_plan(const AttentionArgs<T>& args, bool backward,
               std::initializer_list<const void*> pointers, const Work& work) {
  const Choice chosen = choice();
  if (chosen == Choice::own || (chosen == Choice::automatic && backward) || args.sequences == 0)
    return false;
  const auto refuse = [&](const std::string& why) {
    if (chosen == Choice::cudnn) fail("attention: MINIM_ATTENTION=cudnn, but {}", why);
    return false;
  };
  if constexpr (sizeof(T) != 2) {
    return refuse(fmt::format("cuDNN has none for {}", name_of(dtype_of<T>)));
  } else {
    const std::string why = why_not(args, pointers);
    if (!why.empty()) return refuse(why);
    State& s = state();
    const std::lock_guard lock(s.mutex);
    if (!s.why_unusable.empty()) return refuse(s.why_unusable);
    const CudnnAttentionShape shape{dtype_of<T>,
                                    backward,
                                    round_up(args.sequences, 1),
                                    args.heads,
                                    args.head_dim,
                                    round_up(args.max_queries, 16),
                                    round_up(args.max_keys, 16)};
    const Entry& entry = s.entry(shape);
    if (entry.plan == nullptr) return refuse(entry.why_none);
    work(s, *entry.plan, shape);
    return true;
  }
}

template <class T>
void zero_keyless(const AttentionArgs<T>& args, T* rows, Compute<T>* log_sum_exp,
                  cudaStream_t stream) {
  launch(keyless_queries_kernel<T>,
         {.blocks = {args.sequences}, .threads = {128}, .stream = stream}, args, rows, log_sum_exp);
}

// The whole of a call: offsets, cuDNN's kernels with these tensors besides q, k and v.
template <class T>
void run(State& s, const CudnnAttentionPlan& plan, const CudnnAttentionShape& shape,
         const AttentionArgs<T>& args, std::vector<CudnnAttentionPlan::Binding> bindings,
         const Scratch& scratch, cudaStream_t stream) {
  const size_t rows_bytes = Rows::bytes(shape.sequences);
  auto* memory = static_cast<char*>(scratch(rows_bytes + plan.workspace_bytes()));
  const Rows rows(memory, shape.sequences);
  launch(attention_rows_kernel<T>,
         {.blocks = {shape.sequences / 128 + 1}, .threads = {128}, .stream = stream}, args, rows,
         shape.sequences);
  const float scale = float(args.scale);
  for (const auto& [tensor, data] : std::initializer_list<CudnnAttentionPlan::Binding>{
           {query_offsets_tensor, rows.query_offsets},
           {key_offsets_tensor, rows.key_offsets},
           {log_sum_exp_offsets_tensor, rows.sum_offsets},
           {query_lengths_tensor, rows.queries},
           {key_lengths_tensor, rows.keys},
           {scale_tensor, &scale},
           {q_tensor, args.q},
           {k_tensor, args.k},
           {v_tensor, args.v}})
    bindings.push_back({tensor, data});
  s.library.check(s.library.set_stream(s.handle, stream), shape.describe());
  plan.run(s.handle, bindings, memory + rows_bytes);
}

}  // namespace

template <class T>
bool cudnn_attention_forward(const AttentionArgs<T>& args, T* y, Compute<T>* log_sum_exp,
                             const Scratch& scratch, cudaStream_t stream) {
  return with_plan(args, false, {args.q, args.k, args.v, y},
                   [&](State& s, const auto& plan, const auto& shape) {
                     run(s, plan, shape, args, {{y_tensor, y}, {log_sum_exp_tensor, log_sum_exp}},
                         scratch, stream);
                     zero_keyless(args, y, log_sum_exp, stream);
                   });
}

template <class T>
bool cudnn_attention_backward(const AttentionArgs<T>& args, int64_t key_rows, const T* y,
                              const Compute<T>* log_sum_exp, const T* dy, T* dq, T* dk, T* dv,
                              const Scratch& scratch, cudaStream_t stream) {
  return with_plan(args, true, {args.q, args.k, args.v, y, dy, dq, dk, dv},
                   [&](State& s, const auto& plan, const auto& shape) {
                     // Rows that are nobody's key get no gradient.
                     const size_t key_bytes = size_t(key_rows * args.dim()) * sizeof(T);
                     check_cuda(cudaMemsetAsync(dk, 0, key_bytes, stream), "attention backward");
                     check_cuda(cudaMemsetAsync(dv, 0, key_bytes, stream), "attention backward");
                     run(s, plan, shape, args,
                         {{y_tensor, y},
                          {log_sum_exp_tensor, log_sum_exp},
                          {dy_tensor, dy},
                          {dq_tensor, dq},
                          {dk_tensor, dk},
                          {dv_tensor, dv}},
                         scratch, stream);
                     zero_keyless(args, dq, static_cast<Compute<T>*>(nullptr), stream);
                   });
}

size_t cudnn_attention_plans() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return size_t(std::ranges::count_if(
      s.plans, [](const auto& entry) { return entry.second.plan != nullptr; }));
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
