#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <cudnn_graph.h>

// cuDNN as it is found when the program runs: nothing is linked with it.
namespace minim::cuda {

// The functions of the library that are called.
struct CudnnLibrary {
  decltype(&cudnnGetVersion) version = nullptr;
  decltype(&cudnnGetErrorString) error_string = nullptr;
  decltype(&cudnnGetLastErrorString) last_error = nullptr;
  decltype(&cudnnCreate) create_handle = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy = nullptr;
  decltype(&cudnnBackendSetAttribute) set = nullptr;
  decltype(&cudnnBackendGetAttribute) get = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;

  // Throws Error "what: cuDNN says ..." with the library's own text unless the status is success.
  void check(cudnnStatus_t status, const std::string& what) const;
};

// libcudnn.so.9 from the file or folder that MINIM_CUDNN names, with the parts that lie beside it,
// or from the loader's path; throws Error with the reason if there is none, or one that lacks a
// function.
CudnnLibrary load_cudnn();

// One descriptor of cuDNN's graph interface; `what` begins the texts of errors.
class CudnnDescriptor {
 public:
  CudnnDescriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type,
                  const std::string& what);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const void* values,
           size_t count) const;
  void set(cudnnBackendAttributeName_t name, const std::vector<int64_t>& values) const;
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) const;
  void finalize() const;
  // Fills the array; returns how many values there are.
  int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, void* values,
              size_t capacity) const;
  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  const CudnnLibrary& library_;
  const std::string& what_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

}  // namespace minim::cuda
