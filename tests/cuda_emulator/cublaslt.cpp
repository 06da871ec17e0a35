#include "tests/cuda_emulator/cublaslt.h"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/format.h>

#include "tests/cuda_emulator/runtime.h"
#include "tests/cuda_emulator/work.h"

// The calls of the stand-in.

namespace minim::emulator {

namespace {

struct LibraryHandle {};

struct MatmulPreference {
  uint64_t workspace = 0;
  uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
};

// What the stand-in writes to the opaque bytes of an algorithm: for which product it is, and what
// it relies on.
struct Algorithm {
  uint64_t product = 0;
  uint32_t workspace = 0;
  uint16_t alignment_a = 0, alignment_b = 0, alignment_c = 0, alignment_d = 0;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

std::string& last_explanation() {
  thread_local std::string text;
  return text;
}

cublasStatus_t refuse(cublasStatus_t status, std::string why) {
  last_explanation() = std::move(why);
  return status;
}
cublasStatus_t invalid(std::string why) {
  return refuse(CUBLAS_STATUS_INVALID_VALUE, std::move(why));
}
cublasStatus_t unsupported(std::string why) {
  return refuse(CUBLAS_STATUS_NOT_SUPPORTED, std::move(why));
}

std::set<const void*>& objects() {
  static std::set<const void*> live;
  return live;
}

template <class T, class Opaque>
cublasStatus_t create(Opaque** handle, T value) {
  T* object = new T(std::move(value));
  objects().insert(object);
  *handle = reinterpret_cast<Opaque*>(object);
  return CUBLAS_STATUS_SUCCESS;
}

template <class T>
cublasStatus_t destroy(const void* handle) {
  if (objects().erase(handle) == 0) return invalid("destroyed, but there is no such object");
  delete static_cast<const T*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

// The object of a handle; nullptr if it is none that lives.
template <class T>
T* find(const void* handle) {
  return objects().contains(handle) ? static_cast<T*>(const_cast<void*>(handle)) : nullptr;
}

template <class T>
cublasStatus_t assign(T& target, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(T))
    return invalid(fmt::format("an attribute of {} bytes, which has {}", bytes, sizeof(T)));
  std::memcpy(&target, value, sizeof(T));
  return CUBLAS_STATUS_SUCCESS;
}

// FNV-1a over all that decides whether an algorithm fits.
uint64_t signature(const MatmulWork& w) {
  uint64_t hash = 14695981039346656037u;
  const auto add = [&hash](uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
  for (const MatrixLayout* l : {&w.a, &w.b, &w.c, &w.d})
    for (const uint64_t value : {uint64_t(l->type), l->rows, l->columns, uint64_t(l->stride),
                                 uint64_t(l->batch), uint64_t(l->batch_stride)})
      add(value);
  for (const uint64_t value : {uint64_t(w.operation.compute), uint64_t(w.operation.scale),
                               uint64_t(w.operation.transposed_a),
                               uint64_t(w.operation.transposed_b), uint64_t(w.operation.epilogue)})
    add(value);
  return hash;
}

cublasStatus_t check_types(const MatmulWork& w) {
  const cudaDataType type = w.a.type, result = w.d.type;
  const bool is_double = type == CUDA_R_64F;
  const bool is_float = type == CUDA_R_32F || type == CUDA_R_16F || type == CUDA_R_16BF;
  const bool compute_fits =
      is_double ? w.operation.compute == CUBLAS_COMPUTE_64F
                : w.operation.compute == CUBLAS_COMPUTE_32F ||
                      (w.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && type == CUDA_R_32F);
  if ((!is_double && !is_float) || w.b.type != type || w.c.type != result ||
      (result != type && (is_double || result != CUDA_R_32F)) || !compute_fits ||
      w.operation.scale != (is_double ? CUDA_R_64F : CUDA_R_32F))
    return unsupported("a combination of types that the library does not have");
  switch (w.operation.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
      return CUBLAS_STATUS_SUCCESS;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
      if (is_double) return unsupported("f64 has no epilogues");
      if (w.operation.vector == nullptr) return invalid("the vector of the epilogue is null");
      if (w.operation.epilogue != CUBLASLT_EPILOGUE_BIAS && w.d.batch > 1)
        return unsupported("a bias gradient of several products");
      return CUBLAS_STATUS_SUCCESS;
    default:
      return unsupported(fmt::format("epilogue {} is not emulated", w.operation.epilogue));
  }
}

cublasStatus_t check_shapes(const MatmulWork& w) {
  const bool ta = w.operation.transposed_a != CUBLAS_OP_N;
  const bool tb = w.operation.transposed_b != CUBLAS_OP_N;
  for (const MatrixLayout* l : {&w.a, &w.b, &w.c, &w.d}) {
    if (l->rows == 0 || l->columns == 0) return invalid("a matrix without elements");
    if (l->stride < int64_t(l->rows))
      return invalid(fmt::format("columns of {} rows, {} apart", l->rows, l->stride));
    if (l->batch != w.d.batch) return invalid("matrices with different batch counts");
  }
  if (w.d.batch > 1 && w.d.batch_stride == 0) return invalid("results in one place");
  if ((ta ? w.a.columns : w.a.rows) != w.d.rows || (tb ? w.b.rows : w.b.columns) != w.d.columns ||
      (tb ? w.b.columns : w.b.rows) != uint64_t(w.inner()) || w.c.rows != w.d.rows ||
      w.c.columns != w.d.columns)
    return invalid("shapes that do not fit each other");
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t collect(MatmulWork& w, const void* operation, const void* a, const void* b,
                       const void* c, const void* d) {
  const auto* o = find<MatmulOperation>(operation);
  const auto *la = find<MatrixLayout>(a), *lb = find<MatrixLayout>(b), *lc = find<MatrixLayout>(c),
             *ld = find<MatrixLayout>(d);
  if (o == nullptr || la == nullptr || lb == nullptr || lc == nullptr || ld == nullptr)
    return invalid("a descriptor that does not exist (any more)");
  w.operation = *o;
  w.a = *la;
  w.b = *lb;
  w.c = *lc;
  w.d = *ld;
  const cublasStatus_t types = check_types(w);
  return types != CUBLAS_STATUS_SUCCESS ? types : check_shapes(w);
}

bool divides(uint32_t alignment, const void* p) {
  return uintptr_t(p) % alignment == 0;
}

// What the algorithm relies on; some take less than the alignments they were asked to suit.
cublasStatus_t check_algorithm(const MatmulWork& w, const Algorithm& algorithm,
                               size_t workspace_bytes) {
  if (algorithm.product != signature(w)) return invalid("the algorithm is for another product");
  if (!divides(algorithm.alignment_a, w.a_data) || !divides(algorithm.alignment_b, w.b_data) ||
      !divides(algorithm.alignment_c, w.c_data) || !divides(algorithm.alignment_d, w.d_data))
    return invalid("a matrix is less aligned than the algorithm was asked for");
  if (algorithm.workspace > workspace_bytes)
    return invalid(fmt::format("a workspace of {} bytes, where the algorithm uses {}",
                               workspace_bytes, algorithm.workspace));
  if (workspace_bytes > 0 && (w.workspace == nullptr || !divides(256, w.workspace)))
    return invalid("a workspace that is null, or not at a multiple of 256 bytes");
  if (w.c_data == w.d_data && !(w.c == w.d))
    return invalid("C and D are one matrix with two layouts");
  if (w.operation.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !divides(16, w.operation.vector))
    return invalid("the vector of the epilogue must begin at a multiple of 16 bytes");
  return CUBLAS_STATUS_SUCCESS;
}

double scalar(const void* p, cudaDataType type) {
  return type == CUDA_R_64F ? *static_cast<const double*>(p)
                            : double(*static_cast<const float*>(p));
}

}  // namespace

std::string blas_explanation() {
  return last_explanation();
}

size_t live_blas_objects() {
  const Call call;
  return objects().size();
}

}  // namespace minim::emulator

using namespace minim::emulator;

extern "C" {

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "the operation completed successfully";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the GPU program failed to execute";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the functionality requested is not supported";
    default:
      return "unknown status";
  }
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  const Call call;
  if (call.error() != cudaSuccess)
    return refuse(CUBLAS_STATUS_NOT_INITIALIZED, "there is no device that works");
  return create(handle, LibraryHandle());
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  const Call call;
  return destroy<LibraryHandle>(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  const Call call;
  MatmulOperation made;
  made.compute = compute;
  made.scale = scale;
  return create(operation, made);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  const Call call;
  return destroy<MatmulOperation>(operation);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  const Call call;
  auto* o = find<MatmulOperation>(operation);
  if (o == nullptr) return invalid("an operation that does not exist (any more)");
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return assign(o->transposed_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return assign(o->transposed_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return assign(o->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return assign(o->vector, value, bytes);
    default:
      return unsupported(fmt::format("attribute {} of an operation", int(attribute)));
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  const Call call;
  return create(layout, MatrixLayout{type, rows, columns, stride, 1, 0});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  const Call call;
  return destroy<MatrixLayout>(layout);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  const Call call;
  auto* l = find<MatrixLayout>(layout);
  if (l == nullptr) return invalid("a layout that does not exist (any more)");
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return assign(l->batch, value, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return assign(l->batch_stride, value, bytes);
    default:
      return unsupported(fmt::format("attribute {} of a layout", int(attribute)));
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  const Call call;
  return create(preference, MatmulPreference());
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  const Call call;
  return destroy<MatmulPreference>(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  const Call call;
  auto* p = find<MatmulPreference>(preference);
  if (p == nullptr) return invalid("a preference that does not exist (any more)");
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return assign(p->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return assign(p->alignment_a, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return assign(p->alignment_b, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return assign(p->alignment_c, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return assign(p->alignment_d, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return assign(p->reductions, value, bytes);
    default:
      return unsupported(fmt::format("attribute {} of a preference", int(attribute)));
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  const Call call;
  *found = 0;
  const auto* p = find<MatmulPreference>(preference);
  if (find<LibraryHandle>(handle) == nullptr || p == nullptr || wanted < 1)
    return invalid("no handle, no preference, or no algorithm wanted");
  MatmulWork w;
  if (const cublasStatus_t status = collect(w, operation, a, b, c, d);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  // A small result with a long inner dimension is split, as on a device with many processors: its
  // parts are added up in the workspace.
  const uint64_t parts = w.d.rows * w.d.columns * uint64_t(w.d.batch) * 4 * sizeof(float);
  const bool split = w.inner() >= 64 && parts <= (64 << 10) && parts <= p->workspace &&
                     (p->reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0;
  Algorithm algorithm;
  algorithm.product = signature(w);
  algorithm.workspace = split ? uint32_t(parts) : 0;
  algorithm.alignment_a = uint16_t(p->alignment_a);
  algorithm.alignment_b = uint16_t(p->alignment_b);
  algorithm.alignment_c = uint16_t(p->alignment_c);
  algorithm.alignment_d = uint16_t(p->alignment_d);
  results[0] = cublasLtMatmulHeuristicResult_t{};
  std::memcpy(static_cast<void*>(&results[0].algo), &algorithm, sizeof(algorithm));
  results[0].workspaceSize = algorithm.workspace;
  results[0].state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  const Call call;
  if (call.error() != cudaSuccess)
    return refuse(CUBLAS_STATUS_EXECUTION_FAILED, "earlier work on the device has failed");
  if (find<LibraryHandle>(handle) == nullptr || alpha == nullptr || beta == nullptr ||
      algo == nullptr || a == nullptr || b == nullptr || d == nullptr)
    return invalid("a null pointer");
  MatmulWork w;
  if (const cublasStatus_t status = collect(w, operation, a_layout, b_layout, c_layout, d_layout);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  w.a_data = a;
  w.b_data = b;
  w.c_data = c;
  w.d_data = d;
  w.alpha = scalar(alpha, w.operation.scale);
  w.beta = scalar(beta, w.operation.scale);
  w.workspace = workspace;
  Algorithm algorithm;
  std::memcpy(&algorithm, static_cast<const void*>(algo), sizeof(algorithm));
  if (const cublasStatus_t status = check_algorithm(w, algorithm, workspace_bytes);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  w.workspace_bytes = algorithm.workspace;
  return submit(stream, {[w] { run_matmul(w); }}) == cudaSuccess
             ? CUBLAS_STATUS_SUCCESS
             : refuse(CUBLAS_STATUS_EXECUTION_FAILED, explanation());
}
}
