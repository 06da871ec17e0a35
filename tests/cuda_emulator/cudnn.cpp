#include "tests/cuda_emulator/cudnn.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/cuda_emulator/library.h"
#include "tests/cuda_emulator/runtime.h"

// The calls of the stand-in.

namespace minim::emulator {

namespace {

struct Handle {
  cudaStream_t stream = nullptr;
};

struct Attribute {
  cudnnBackendAttributeType_t type;
  int64_t count;
  std::vector<char> bytes;
};

struct Descriptor {
  cudnnBackendDescriptorType_t type;
  bool finalized = false;
  std::map<int, Attribute> attributes;
  // What is made of them: a copy, since what they name may be destroyed.
  CudnnTensorLayout tensor;
  std::shared_ptr<const CudnnAttention> attention;
};

// Why a call is refused.
struct Refusal {
  cudnnStatus_t status;
  std::string why;
};
[[noreturn]] void refuse(cudnnStatus_t status, std::string why) {
  throw Refusal{status, std::move(why)};
}
void require(bool condition, const char* why) {
  if (!condition) refuse(CUDNN_STATUS_BAD_PARAM, why);
}

std::string& last_explanation() {
  thread_local std::string text;
  return text;
}

template <class Work>
cudnnStatus_t call(const Work& work) {
  const Call locked;
  try {
    work();
    return CUDNN_STATUS_SUCCESS;
  } catch (const Refusal& refusal) {
    last_explanation() = refusal.why;
    return refusal.status;
  }
}

std::set<const void*>& descriptors() {
  static std::set<const void*> live;
  return live;
}

Descriptor& find(void* handle) {
  require(descriptors().contains(handle), "a descriptor that does not exist (any more)");
  return *static_cast<Descriptor*>(handle);
}

// The values of an attribute, which must have been set as this type.
template <class T>
std::vector<T> values(const Descriptor& d, int name, cudnnBackendAttributeType_t type) {
  const auto it = d.attributes.find(name);
  if (it == d.attributes.end())
    refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("attribute {} is not set", name));
  if (it->second.type != type)
    refuse(CUDNN_STATUS_BAD_PARAM, fmt::format("attribute {} has another type", name));
  std::vector<T> result(size_t(it->second.count));
  require(it->second.bytes.size() == result.size() * sizeof(T), "an attribute of another size");
  std::memcpy(result.data(), it->second.bytes.data(), it->second.bytes.size());
  return result;
}
template <class T>
T value(const Descriptor& d, int name, cudnnBackendAttributeType_t type) {
  const std::vector<T> all = values<T>(d, name, type);
  require(all.size() == 1, "an attribute that is one value has several");
  return all[0];
}
Descriptor& named(const Descriptor& d, int name, cudnnBackendDescriptorType_t type) {
  Descriptor& other = find(value<void*>(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR));
  require(other.type == type, "an attribute names a descriptor of another type");
  require(other.finalized, "an attribute names a descriptor that is not finalized");
  return other;
}

size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_HEUR_MODE:
    case CUDNN_TYPE_NUMERICAL_NOTE:
      return 4;
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    default:
      refuse(CUDNN_STATUS_NOT_SUPPORTED, fmt::format("values of type {}", int(type)));
  }
}

void finalize_tensor(Descriptor& d) {
  CudnnTensorLayout& t = d.tensor;
  t.id = value<int64_t>(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64);
  t.type = value<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE);
  t.alignment = value<int64_t>(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64);
  const auto dims = values<int64_t>(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64);
  const auto strides = values<int64_t>(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64);
  require(t.id != 0, "id 0 is not used here");
  require(dims.size() == 4 && strides.size() == 4, "attention has tensors of four dimensions");
  require(bytes_of(t.type) > 0 && t.alignment % int64_t(bytes_of(t.type)) == 0 && t.alignment > 0,
          "the alignment must be a multiple of the element's size");
  for (size_t i = 0; i < 4; ++i)
    require(dims[i] > 0 && strides[i] > 0, "dimensions and strides must be positive");
  std::ranges::copy(dims, t.dims.begin());
  std::ranges::copy(strides, t.strides.begin());
  if (d.attributes.contains(CUDNN_ATTR_TENSOR_IS_BY_VALUE))
    t.by_value = value<uint8_t>(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN) != 0;
  if (!d.attributes.contains(CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC)) return;
  const CudnnTensorLayout& offsets =
      named(d, CUDNN_ATTR_TENSOR_RAGGED_OFFSET_DESC, CUDNN_BACKEND_TENSOR_DESCRIPTOR).tensor;
  require(offsets.type == CUDNN_DATA_INT64 || offsets.type == CUDNN_DATA_INT32,
          "ragged offsets must be integers");
  require(offsets.dims == std::array<int64_t, 4>{dims[0] + 1, 1, 1, 1},
          "ragged offsets must be [batch + 1, 1, 1, 1]");
  t.offsets = offsets.id;
  t.offsets_type = offsets.type;
}

void finalize_attention(Descriptor& d, bool backward) {
  auto attention = std::make_shared<CudnnAttention>();
  attention->backward = backward;
  const std::map<Role, int> names =
      backward
          ? std::map<Role, int>{{Role::q, CUDNN_ATTR_OPERATION_SDPA_BWD_QDESC},
                                {Role::k, CUDNN_ATTR_OPERATION_SDPA_BWD_KDESC},
                                {Role::v, CUDNN_ATTR_OPERATION_SDPA_BWD_VDESC},
                                {Role::y, CUDNN_ATTR_OPERATION_SDPA_BWD_ODESC},
                                {Role::sums, CUDNN_ATTR_OPERATION_SDPA_BWD_STATSDESC},
                                {Role::scale, CUDNN_ATTR_OPERATION_SDPA_BWD_SCALEDESC},
                                {Role::query_lengths, CUDNN_ATTR_OPERATION_SDPA_BWD_SEQ_LEN_QDESC},
                                {Role::key_lengths, CUDNN_ATTR_OPERATION_SDPA_BWD_SEQ_LEN_KVDESC},
                                {Role::dy, CUDNN_ATTR_OPERATION_SDPA_BWD_DODDESC},
                                {Role::dq, CUDNN_ATTR_OPERATION_SDPA_BWD_DQDESC},
                                {Role::dk, CUDNN_ATTR_OPERATION_SDPA_BWD_DKDESC},
                                {Role::dv, CUDNN_ATTR_OPERATION_SDPA_BWD_DVDESC}}
          : std::map<Role, int>{{Role::q, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC},
                                {Role::k, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC},
                                {Role::v, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC},
                                {Role::y, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC},
                                {Role::sums, CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC},
                                {Role::scale, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC},
                                {Role::query_lengths, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_QDESC},
                                {Role::key_lengths, CUDNN_ATTR_OPERATION_SDPA_FWD_SEQ_LEN_KVDESC}};
  auto& tensors = attention->tensors;
  std::set<int64_t> ids;
  for (const auto& [role, name] : names) {
    tensors[role] = named(d, name, CUDNN_BACKEND_TENSOR_DESCRIPTOR).tensor;
    require(ids.insert(tensors[role].id).second, "two tensors have one id");
  }
  const auto dims = tensors[Role::q].dims, key_dims = tensors[Role::k].dims;
  require(dims[0] == key_dims[0] && dims[1] == key_dims[1] && dims[3] == key_dims[3],
          "q and k must agree in batch, heads and head_dim");
  for (const auto& [role, t] : tensors) {
    const bool is_key = role == Role::k || role == Role::v || role == Role::dk || role == Role::dv;
    switch (role) {
      case Role::scale:
        require(t.by_value && t.type == CUDNN_DATA_FLOAT &&
                    t.dims == std::array<int64_t, 4>{1, 1, 1, 1},
                "the scale must be one f32 by value");
        break;
      case Role::query_lengths:
      case Role::key_lengths:
        require(t.type == CUDNN_DATA_INT32 && t.dims == std::array<int64_t, 4>{dims[0], 1, 1, 1},
                "lengths must be i32 [batch, 1, 1, 1]");
        break;
      case Role::sums:
        require(t.type == CUDNN_DATA_FLOAT &&
                    t.dims == std::array<int64_t, 4>{dims[0], dims[1], dims[2], 1},
                "statistics must be f32 [batch, heads, queries, 1]");
        break;
      default:
        require(t.type == tensors[Role::q].type &&
                    (t.type == CUDNN_DATA_HALF || t.type == CUDNN_DATA_BFLOAT16),
                "all tensors must be f16, or all bf16");
        require(t.dims == (is_key ? key_dims : dims), "a tensor has another shape");
        require(t.strides[3] == 1 && t.alignment >= 16, "rows must be dense and aligned to 16");
    }
  }
  if (backward)  // as the library, which has engines for packed statistics alone
    require(tensors[Role::sums].offsets != 0 && dims[3] <= 256, "there is no engine for this");
  require(dims[3] % 8 == 0, "head_dim must be a multiple of 8");
  d.attention = attention;
}

void finalize(Descriptor& d) {
  require(!d.finalized, "finalized twice");
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      finalize_tensor(d);
      break;
    case CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR:
      finalize_attention(d, d.type == CUDNN_BACKEND_OPERATION_SDPA_BWD_DESCRIPTOR);
      break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: {
      const Descriptor& operation =
          find(value<void*>(d, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR));
      require(operation.finalized && operation.attention != nullptr, "no finalized operation");
      d.attention = operation.attention;
      break;
    }
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      value<cudnnBackendHeurMode_t>(d, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE);
      d.attention =
          named(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
              .attention;
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      d.attention =
          named(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
              .attention;
      break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      break;
    default:
      refuse(CUDNN_STATUS_NOT_SUPPORTED, "descriptors of this type are not finalized here");
  }
  d.finalized = true;
}

// As much as the library takes: dq in f32, where it is added up.
int64_t workspace_bytes(const CudnnAttention& attention) {
  const auto& dims = attention.tensors.at(Role::q).dims;
  return attention.backward ? dims[0] * dims[1] * dims[2] * dims[3] * 4 : 1024;
}

int64_t get(Descriptor& d, int name, int64_t capacity, void* result) {
  require(d.finalized || d.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR, "not finalized");
  require(capacity >= 1 && result != nullptr, "no room for the result");
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
      Descriptor& other = find(*static_cast<void**>(result));
      other.attention = d.attention;
      other.finalized = true;
      return 1;
    }
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      *static_cast<cudnnBackendNumericalNote_t*>(result) = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
      return 1;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      *static_cast<int64_t*>(result) = workspace_bytes(*d.attention);
      return 1;
    default:
      refuse(CUDNN_STATUS_NOT_SUPPORTED, fmt::format("attribute {} is not known here", name));
  }
}

void execute(const Handle& handle, const Descriptor& plan, const Descriptor& pack) {
  require(plan.finalized && pack.finalized && plan.attention != nullptr, "not finalized");
  const auto ids = values<int64_t>(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64);
  const auto pointers =
      values<void*>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR);
  auto* workspace = value<void*>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR);
  require(ids.size() == pointers.size(), "there must be a pointer for each id");
  std::map<int64_t, void*> data;
  for (size_t i = 0; i < ids.size(); ++i)
    require(data.emplace(ids[i], pointers[i]).second, "an id is bound twice");
  std::set<int64_t> used;
  for (const auto& [role, t] : plan.attention->tensors) {
    for (const int64_t id : {t.id, t.offsets})
      if (id != 0) {
        require(data.contains(id) && data[id] != nullptr, "a tensor is bound to nothing");
        used.insert(id);
      }
    require(uintptr_t(data[t.id]) % size_t(t.alignment) == 0, "a tensor is not aligned");
  }
  require(used.size() == data.size(), "an id is bound that the graph does not have");
  require(workspace != nullptr && uintptr_t(workspace) % 256 == 0, "the workspace is not aligned");
  // Taken now, as the library does with what is given by value.
  float scale = 0;
  std::memcpy(&scale, data[plan.attention->tensors.at(Role::scale).id], sizeof(scale));
  const auto bytes = size_t(workspace_bytes(*plan.attention));
  const cudaError_t error =
      run_library("cuDNN's attention", handle.stream, {}, {{workspace, bytes, 1, bytes}},
                  [attention = plan.attention, data, scale, workspace, bytes] {
                    std::memset(workspace, 0xff, bytes);
                    run_attention(*attention, data, scale);
                  });
  if (error != cudaSuccess) refuse(CUDNN_STATUS_EXECUTION_FAILED, cudaGetErrorString(error));
}

}  // namespace

}  // namespace minim::emulator

using namespace minim::emulator;

extern "C" {

size_t cudnnGetVersion() {
  return CUDNN_VERSION;
}
const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS     ? "CUDNN_STATUS_SUCCESS"
         : status == CUDNN_STATUS_BAD_PARAM ? "CUDNN_STATUS_BAD_PARAM"
                                            : "CUDNN_STATUS_NOT_SUPPORTED";
}
void cudnnGetLastErrorString(char* message, size_t size) {
  const size_t bytes = std::min(size - 1, last_explanation().size());
  std::memcpy(message, last_explanation().data(), bytes);
  message[bytes] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  // Never destroyed, as those of the program are.
  static std::vector<std::unique_ptr<Handle>> handles;
  return call([&] {
    handles.push_back(std::make_unique<Handle>());
    *handle = reinterpret_cast<cudnnHandle_t>(handles.back().get());
  });
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return call([&] { reinterpret_cast<Handle*>(handle)->stream = stream; });
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  return call([&] {
    auto* made = new Descriptor{type, false, {}, {}, nullptr};
    descriptors().insert(made);
    *descriptor = made;
  });
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return call([&] {
    Descriptor* d = &find(descriptor);
    descriptors().erase(d);
    delete d;
  });
}
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* array) {
  return call([&] {
    Descriptor& d = find(descriptor);
    require(!d.finalized, "an attribute of a finalized descriptor cannot be set");
    require(count > 0 && array != nullptr, "an attribute without values");
    const auto* bytes = static_cast<const char*>(array);
    d.attributes[int(name)] = {type, count, {bytes, bytes + size_t(count) * size_of(type)}};
  });
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t, int64_t capacity,
                                       int64_t* count, void* array) {
  return call([&] { *count = get(find(descriptor), int(name), capacity, array); });
}
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return call([&] { finalize(find(descriptor)); });
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  return call([&] { execute(*reinterpret_cast<Handle*>(handle), find(plan), find(pack)); });
}
}
