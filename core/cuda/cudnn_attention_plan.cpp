#include "core/cuda/cudnn_attention_plan.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/error.h"

namespace minim::cuda {

namespace {

// The operation with its tensors. Descriptors name each other, so all of them live with the graph.
class Graph {
 public:
  // The handle is null for a device that is described.
  Graph(const CudnnLibrary& library, const CudnnAttentionShape& shape, const std::string& what,
        cudnnHandle_t handle)
      : library_(library), shape_(shape), what_(what) {
    add_operation();
    const CudnnDescriptor& graph = add(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, *operation_);
    if (handle != nullptr)
      graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &handle, 1);
    graph.finalize();
    graph_ = &graph;
  }

  // The engines that cuDNN proposes, best first.
  std::vector<CudnnDescriptor> engines(const CudnnDescriptor* device) const {
    const CudnnDescriptor heuristic(library_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, what_);
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, *graph_);
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode, 1);
    if (device != nullptr) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *device);
    heuristic.finalize();
    constexpr size_t most = 16;
    std::vector<CudnnDescriptor> found;
    std::vector<cudnnBackendDescriptor_t> handles;
    found.reserve(most);
    for (size_t i = 0; i < most; ++i)
      handles.push_back(
          found.emplace_back(library_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, what_).get());
    const int64_t count =
        heuristic.get(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, handles.data(),
                      handles.size());
    while (int64_t(found.size()) > count)
      found.pop_back();
    return found;
  }

 private:
  const CudnnDescriptor& add(cudnnBackendDescriptorType_t type) {
    return *owned_.emplace_back(std::make_unique<CudnnDescriptor>(library_, type, what_));
  }

  const CudnnDescriptor& add_tensor(int64_t id, cudnnDataType_t type,
                                    const std::vector<int64_t>& dims,
                                    const std::vector<int64_t>& strides, int64_t alignment,
                                    const CudnnDescriptor* offsets = nullptr) {
    const CudnnDescriptor& tensor = add(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    tensor.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, {id});
    tensor.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type, 1);
    tensor.set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims);
    tensor.set(CUDNN_ATTR_TENSOR_STRIDES, strides);
    tensor.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {alignment});
    if (offsets != nullptr) tensor.set(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, *offsets);
    if (id == scale_tensor) {
      const bool by_value = true;
      tensor.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, &by_value, 1);
    }
    tensor.finalize();
    return tensor;
  }

  // One number for each sequence, or one more.
  const CudnnDescriptor& add_vector(int64_t id, cudnnDataType_t type, int64_t n) {
    return add_tensor(id, type, {n, 1, 1, 1}, {1, 1, 1, 1}, type == CUDNN_DATA_INT64 ? 8 : 4);
  }

  // [sequences, heads, rows, head_dim], where rows are those of all heads.
  const CudnnDescriptor& add_rows(int64_t id, int64_t rows, const CudnnDescriptor& offsets) {
    const int64_t d = shape_.head_dim, dim = shape_.heads * d;
    return add_tensor(id, shape_.dtype == DType::f16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16,
                      {shape_.sequences, shape_.heads, rows, d}, {rows * dim, d, dim, 1}, 16,
                      &offsets);
  }

  void add_operation() {
    const int64_t n = shape_.sequences, h = shape_.heads;
    const auto& query_offsets = add_vector(query_offsets_tensor, CUDNN_DATA_INT64, n + 1);
    const auto& key_offsets = add_vector(key_offsets_tensor, CUDNN_DATA_INT64, n + 1);
    const auto& sum_offsets = add_vector(log_sum_exp_offsets_tensor, CUDNN_DATA_INT64, n + 1);
    const auto& query_lengths = add_vector(query_lengths_tensor, CUDNN_DATA_INT32, n);
    const auto& key_lengths = add_vector(key_lengths_tensor, CUDNN_DATA_INT32, n);
    const auto& scale = add_tensor(scale_tensor, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, 4);
    const auto of_queries = [&](int64_t id) -> auto& {
      return add_rows(id, shape_.queries, query_offsets);
    };
    const auto of_keys = [&](int64_t id) -> auto& {
      return add_rows(id, shape_.keys, key_offsets);
    };
    const auto &q = of_queries(q_tensor), &k = of_keys(k_tensor), &v = of_keys(v_tensor),
               &y = of_queries(y_tensor);
    const auto& sums = add_tensor(log_sum_exp_tensor, CUDNN_DATA_FLOAT, {n, h, shape_.queries, 1},
                                  {shape_.queries * h, 1, h, 1}, 4, &sum_offsets);
    if (!shape_.backward) {
      const CudnnDescriptor& o = add(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
      o.set(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, q);
      o.set(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, k);
      o.set(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, v);
      o.set(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, y);
      o.set(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC, sums);
      o.set(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, scale);
      o.set(CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC, query_lengths);
      o.set(CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC, key_lengths);
      operation_ = &o;
    } else {
      const auto &dy = of_queries(dy_tensor), &dq = of_queries(dq_tensor), &dk = of_keys(dk_tensor),
                 &dv = of_keys(dv_tensor);
      const CudnnDescriptor& o = add(CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR);
      o.set(CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC, q);
      o.set(CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC, k);
      o.set(CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC, v);
      o.set(CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC, y);
      o.set(CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC, sums);
      o.set(CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC, scale);
      o.set(CUDNN_ATTR_OPERATION_SDPA_BWD_SEQ_LEN_QDESC, query_lengths);
      o.set(CUDNN_ATTR_OPERATION_SDPA_BWD_SEQ_LEN_KVDESC, key_lengths);
      o.set(CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC, dy);
      o.set(CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC, dq);
      o.set(CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC, dk);
      o.set(CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC, dv);
      operation_ = &o;
    }
    operation_->finalize();
  }

  const CudnnLibrary& library_;
  const CudnnAttentionShape& shape_;
  const std::string& what_;
  std::vector<std::unique_ptr<CudnnDescriptor>> owned_;
  const CudnnDescriptor* operation_ = nullptr;
  const CudnnDescriptor* graph_ = nullptr;
};

// Does the engine say that its results vary from run to run?
bool varies(const CudnnLibrary& library, const CudnnDescriptor& configuration,
            const std::string& what) {
  const CudnnDescriptor engine(library, CUDNN_BACKEND_ENGINE_DESCRIPTOR, what);
  cudnnBackendDescriptor_t handle = engine.get();
  configuration.get(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, &handle, 1);
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  const int64_t count = engine.get(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                   notes.data(), notes.size());
  notes.resize(size_t(std::clamp<int64_t>(count, 0, int64_t(notes.size()))));
  return std::ranges::find(notes, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) != notes.end();
}

}  // namespace

std::string CudnnAttentionShape::describe() const {
  return fmt::format(
      "attention{}: {}, up to {} sequences of {} queries and {} keys, {} heads of {}",
      backward ? " backward" : "", name_of(dtype), sequences, queries, keys, heads, head_dim);
}

CudnnAttentionPlan::CudnnAttentionPlan(const CudnnLibrary& library, cudnnHandle_t handle,
                                       const CudnnAttentionShape& shape)
    : library_(library), what_(shape.describe()) {
  const Graph graph(library, shape, what_, handle);
  std::string why = fmt::format("{}: cuDNN {} has no engine for it", what_, library.version());
  for (const CudnnDescriptor& engine : graph.engines(nullptr)) {
    if (varies(library, engine, what_)) continue;
    try {
      auto plan = std::make_unique<CudnnDescriptor>(library,
                                                    CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, what_);
      plan->set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, &handle, 1);
      plan->set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
      plan->finalize();
      int64_t bytes = 0;
      plan->get(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, &bytes, 1);
      workspace_bytes_ = size_t(bytes);
      plan_ = std::move(plan);
      return;
    } catch (const Error& error) {
      why = error.what();
    }
  }
  throw Error(why);
}

void CudnnAttentionPlan::run(cudnnHandle_t handle, const std::vector<Binding>& bindings,
                             void* workspace) const {
  std::vector<int64_t> ids;
  std::vector<const void*> pointers;
  for (const Binding& binding : bindings) {
    ids.push_back(binding.tensor);
    pointers.push_back(binding.data);
  }
  const CudnnDescriptor pack(library_, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, what_);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers.data(),
           pointers.size());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, &workspace, 1);
  pack.finalize();
  library_.check(library_.execute(handle, plan_->get(), pack.get()), what_);
}

int64_t CudnnAttentionPlan::engines_for(const CudnnLibrary& library, const std::string& device,
                                        const CudnnAttentionShape& shape) {
  const std::string what = shape.describe();
  const CudnnDescriptor properties(library, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, what);
  properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, device.data(),
                 device.size());
  properties.finalize();
  const Graph graph(library, shape, what, nullptr);
  return int64_t(graph.engines(&properties).size());
}

}  // namespace minim::cuda
