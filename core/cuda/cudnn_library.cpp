#include "core/cuda/cudnn_library.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace minim::cuda {

namespace {

// The texts of an error that the loader gives.
std::string loader_error() {
  const char* text = dlerror();
  return text == nullptr ? "unknown error" : text;
}

// Loads the parts that cuDNN loads when it needs them, those that others need first: it asks for
// them by name, which finds what is loaded already wherever it lies. A part that there is not, or
// that cannot be loaded, is for cuDNN to complain about if it needs it.
void load_parts(const std::filesystem::path& folder) {
  for (const char* part : {"graph", "ops", "engines_precompiled", "heuristic",
                           "engines_runtime_compiled", "engines_tensor_ir"}) {
    const std::filesystem::path file = folder / fmt::format("libcudnn_{}.so.9", part);
    std::error_code error;
    if (std::filesystem::exists(file, error)) dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
  }
}

void* open_library() {
  const char* place = std::getenv("MINIM_CUDNN");
  const bool named = place != nullptr && *place != '\0';
  std::filesystem::path file = named ? place : "libcudnn.so.9";
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) file /= "libcudnn.so.9";
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  minim::check(library != nullptr, "cudnn: {}; set MINIM_CUDNN to the folder that has it",
               library == nullptr ? loader_error() : "");
  if (named && file.has_parent_path()) load_parts(file.parent_path());
  return library;
}

template <class Function>
void resolve(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  minim::check(function != nullptr, "cudnn: the library has no {}; version 9 is needed", name);
}

}  // namespace

void CudnnLibrary::check(cudnnStatus_t status, const std::string& what) const {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char text[1024] = {};
  last_error(text, sizeof(text));
  fail("{}: cuDNN {} says {}{}{}", what, version(), error_string(status),
       text[0] == '\0' ? "" : ": ", std::string(text));
}

CudnnLibrary load_cudnn() {
  void* file = open_library();
  CudnnLibrary library;
  resolve(file, "cudnnGetVersion", library.version);
  resolve(file, "cudnnGetErrorString", library.error_string);
  resolve(file, "cudnnGetLastErrorString", library.last_error);
  resolve(file, "cudnnCreate", library.create_handle);
  resolve(file, "cudnnSetStream", library.set_stream);
  resolve(file, "cudnnBackendCreateDescriptor", library.create);
  resolve(file, "cudnnBackendDestroyDescriptor", library.destroy);
  resolve(file, "cudnnBackendSetAttribute", library.set);
  resolve(file, "cudnnBackendGetAttribute", library.get);
  resolve(file, "cudnnBackendFinalize", library.finalize);
  resolve(file, "cudnnBackendExecute", library.execute);
  return library;
}

CudnnDescriptor::CudnnDescriptor(const CudnnLibrary& library, cudnnBackendDescriptorType_t type,
                                 const std::string& what)
    : library_(library), what_(what) {
  library.check(library.create(type, &descriptor_), what);
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) library_.destroy(descriptor_);
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : library_(other.library_),
      what_(other.what_),
      descriptor_(std::exchange(other.descriptor_, nullptr)) {}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                          const void* values, size_t count) const {
  library_.check(library_.set(descriptor_, name, type, int64_t(count), values), what_);
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name,
                          const std::vector<int64_t>& values) const {
  set(name, CUDNN_TYPE_INT64, values.data(), values.size());
}

void CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) const {
  set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &value.descriptor_, 1);
}

void CudnnDescriptor::finalize() const {
  library_.check(library_.finalize(descriptor_), what_);
}

int64_t CudnnDescriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             void* values, size_t capacity) const {
  int64_t count = 0;
  library_.check(library_.get(descriptor_, name, type, int64_t(capacity), &count, values), what_);
  return count;
}

}  // namespace minim::cuda
