#include "core/cuda/gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <string>
#include <type_traits>

#include <cublasLt.h>
#include <fmt/format.h>

#include "core/cuda/gemm_rest.h"
#include "core/cuda/launch.h"
#include "core/error.h"

// cuBLASLt knows column-major matrices, which are the transposes of ours: it is asked for
// cᵀ = bᵀ aᵀ, so that its first operand is our b and the rows of its result our columns.

namespace minim::cuda {

namespace {

template <class T>
std::string describe(const Product<T>& p) {
  return fmt::format("gemm: {} [{}, {}] x [{}, {}]{}", name_of(dtype_of<T>), p.m, p.k, p.k, p.n,
                     p.batch == 1 ? "" : fmt::format(", {} times", p.batch));
}

template <class T>
void check_blas(cublasStatus_t status, const Product<T>& p) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail("{}: cuBLASLt says \"{}\"", describe(p), cublasLtGetStatusString(status));
}

// A handle of the library with what destroys it.
template <class Handle, cublasStatus_t (*destroy)(Handle)>
struct Destroy {
  void operator()(Handle handle) const { destroy(handle); }
};
template <class Handle, cublasStatus_t (*destroy)(Handle)>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, destroy>>;
using Handle = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

// Rows and columns of an operand as it lies in memory.
template <class T>
struct Stored {
  int64_t rows, columns, stride;

  // The stride of a single row means nothing, and need not be one that the library accepts.
  Stored(const Matrix<T>& matrix, int64_t rows, int64_t columns)
      : Stored(matrix.transposed ? columns : rows, matrix.transposed ? rows : columns,
               matrix.stride) {}
  Stored(int64_t rows, int64_t columns, int64_t stride)
      : rows(rows), columns(columns), stride(rows == 1 ? std::max(stride, columns) : stride) {}
};

template <class T>
void check_operand(const Product<T>& p, const char* name, const void* data, const Stored<T>& s) {
  check(data != nullptr, "{}: {} is a null pointer", describe(p), name);
  check(s.stride >= s.columns, "{}: the rows of {} are {} elements apart, they have {}",
        describe(p), name, s.stride, s.columns);
}

template <class T>
void check_product(const Product<T>& p) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  check(p.m >= 0 && p.n >= 0 && p.k >= 0 && p.batch >= 0, "{}: sizes cannot be negative",
        describe(p));
  check(p.m <= most && p.n <= most && p.k <= most && p.batch <= most,
        "{}: cuBLASLt takes sizes up to {}", describe(p), most);
  check(p.a_sums == nullptr || p.batch == 1, "{}: a_sums needs a single product", describe(p));
  check(p.batch <= 1 || p.c_batch >= p.n, "{}: the results, {} elements apart, overlap",
        describe(p), p.c_batch);
  const bool writes = p.m > 0 && p.n > 0 && p.batch > 0;
  if (writes) check_operand(p, "c", p.c, Stored<T>(p.m, p.n, p.c_stride));
  if ((writes || (p.m > 0 && p.a_sums != nullptr)) && p.k > 0)
    check_operand(p, "a", p.a.data, Stored<T>(p.a, p.m, p.k));
  if (writes && p.k > 0) check_operand(p, "b", p.b.data, Stored<T>(p.b, p.k, p.n));
}

// The largest power of two, up to 256, that divides the address.
uint32_t alignment_of(const void* p) {
  return uint32_t(1) << std::min(std::countr_zero(uintptr_t(p)), 8);
}

template <class T>
constexpr cudaDataType data_type = std::is_same_v<T, float>    ? CUDA_R_32F
                                   : std::is_same_v<T, double> ? CUDA_R_64F
                                   : std::is_same_v<T, f16>    ? CUDA_R_16F
                                                               : CUDA_R_16BF;
template <class T>
constexpr cudaDataType scale_type = std::is_same_v<T, double> ? CUDA_R_64F : CUDA_R_32F;

template <class T>
cublasComputeType_t compute_type(const Product<T>& p) {
  if (std::is_same_v<T, double>) return CUBLAS_COMPUTE_64F;
  return std::is_same_v<T, float> && p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

// cuBLASLt's part in a product: the bias or the sums of a, if it can do that. It has no epilogues
// for f64, wants vectors at multiples of 16 bytes, and in some versions forgets the bias of a
// result with one column.
template <class T>
cublasLtEpilogue_t epilogue_of(const Product<T>& p) {
  const void* vector = p.bias != nullptr ? p.bias : p.a_sums;
  if (vector == nullptr || (p.bias != nullptr && p.a_sums != nullptr) ||
      std::is_same_v<T, double> || alignment_of(vector) < 16 || p.n == 1)
    return CUBLASLT_EPILOGUE_DEFAULT;
  return p.bias != nullptr ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_BGRADB;
}

// Everything that the choice of an algorithm depends on.
using Key = std::array<int64_t, 19>;

template <class T>
Key key_of(const Product<T>& p) {
  return {int64_t(dtype_of<T>),
          p.m,
          p.n,
          p.k,
          int64_t(p.a.transposed),
          int64_t(p.b.transposed),
          p.a.stride,
          p.b.stride,
          p.c_stride,
          p.batch,
          p.a_batch,
          p.b_batch,
          p.c_batch,
          int64_t(compute_type(p)),
          int64_t(p.beta != 0),
          int64_t(epilogue_of(p)),
          alignment_of(p.a.data),
          alignment_of(p.b.data),
          alignment_of(p.c)};
}

struct Plan {
  Operation operation;
  Layout first, second, result;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cublasLtMatmulAlgo_t algorithm{};
};

}  // namespace

struct Blas::State {
  cudaStream_t stream;
  void* workspace;
  size_t workspace_bytes;
  Handle handle;
  std::map<Key, Plan> plans;

  template <class T>
  void set(const Product<T>& p, const Plan& plan, cublasLtMatmulDescAttributes_t attribute,
           const auto& value) {
    check_blas(
        cublasLtMatmulDescSetAttribute(plan.operation.get(), attribute, &value, sizeof(value)), p);
  }
  template <class T>
  void set_vector(const Product<T>& p, const Plan& plan) {
    const void* vector = p.bias != nullptr ? p.bias : p.a_sums;
    if (plan.epilogue != CUBLASLT_EPILOGUE_DEFAULT)
      set(p, plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, vector);
  }
  template <class T>
  Layout layout(const Product<T>& p, const Stored<T>& s, int64_t batch_stride) const;
  template <class T>
  bool choose_algorithm(const Product<T>& p, Plan& plan) const;
  template <class T>
  Plan make_plan(const Product<T>& p);
};

template <class T>
Layout Blas::State::layout(const Product<T>& p, const Stored<T>& s, int64_t batch_stride) const {
  cublasLtMatrixLayout_t made = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&made, data_type<T>, uint64_t(s.columns), uint64_t(s.rows),
                                        s.stride),
             p);
  Layout owned(made);
  const auto batch = int32_t(p.batch);
  check_blas(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                              sizeof(batch)),
             p);
  check_blas(cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                              &batch_stride, sizeof(batch_stride)),
             p);
  return owned;
}

// Asks for the best algorithm; false if there is none. An epilogue that does not exist for a type
// is an invalid value to some versions, and unsupported to others.
template <class T>
bool Blas::State::choose_algorithm(const Product<T>& p, Plan& plan) const {
  cublasLtMatmulPreference_t made = nullptr;
  check_blas(cublasLtMatmulPreferenceCreate(&made), p);
  const Preference preference(made);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check_blas(cublasLtMatmulPreferenceSetAttribute(made, attribute, &value, sizeof(value)), p);
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace_bytes));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p.b.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p.a.data));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p.c));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p.c));
  // Where k is split, parts are added in the type of the arithmetic, not in f16 or bf16.
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle.get(), plan.operation.get(), plan.first.get(), plan.second.get(), plan.result.get(),
      plan.result.get(), made, 1, &best, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
      (status == CUBLAS_STATUS_SUCCESS && (found == 0 || best.state != CUBLAS_STATUS_SUCCESS)))
    return false;
  check_blas(status, p);
  plan.algorithm = best.algo;
  return true;
}

template <class T>
Plan Blas::State::make_plan(const Product<T>& p) {
  Plan plan;
  cublasLtMatmulDesc_t made = nullptr;
  check_blas(cublasLtMatmulDescCreate(&made, compute_type(p), scale_type<T>), p);
  plan.operation.reset(made);
  const auto set_transposed = [&](cublasLtMatmulDescAttributes_t attribute, bool transposed) {
    set(p, plan, attribute, int32_t(transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
  };
  set_transposed(CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed);
  set_transposed(CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed);
  plan.first = layout(p, Stored<T>(p.b, p.k, p.n), p.b_batch);
  plan.second = layout(p, Stored<T>(p.a, p.m, p.k), p.a_batch);
  plan.result = layout(p, Stored<T>(p.m, p.n, p.c_stride), p.c_batch);

  plan.epilogue = epilogue_of(p);
  set(p, plan, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(plan.epilogue));
  set_vector(p, plan);
  if (choose_algorithm(p, plan)) return plan;
  if (plan.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    plan.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    set(p, plan, CUBLASLT_MATMUL_DESC_EPILOGUE, uint32_t(plan.epilogue));
    if (choose_algorithm(p, plan)) return plan;
  }
  fail("{}: cuBLASLt has no algorithm for rows {}, {} and {} elements apart", describe(p),
       p.a.stride, p.b.stride, p.c_stride);
}

Blas::Blas(cudaStream_t stream, void* workspace, size_t workspace_bytes)
    : state_(new State{stream, workspace, workspace_bytes, nullptr, {}}) {
  check(workspace != nullptr || workspace_bytes == 0,
        "gemm: a workspace of {} bytes is a null pointer", workspace_bytes);
  check(alignment_of(workspace) == 256,
        "gemm: the workspace must begin at a multiple of 256 bytes");
  cublasLtHandle_t made = nullptr;
  const cublasStatus_t status = cublasLtCreate(&made);
  check(status == CUBLAS_STATUS_SUCCESS, "gemm: cuBLASLt cannot be used, it says \"{}\"",
        cublasLtGetStatusString(status));
  state_->handle.reset(made);
}

Blas::~Blas() = default;

template <class T>
void Blas::gemm(const Product<T>& p) {
  check_product(p);
  State& s = *state_;
  const bool empty = p.m == 0 || p.n == 0 || p.k == 0 || p.batch == 0;
  cublasLtEpilogue_t done = CUBLASLT_EPILOGUE_DEFAULT;
  if (!empty) {
    const Key key = key_of(p);
    auto it = s.plans.find(key);
    if (it == s.plans.end()) it = s.plans.emplace(key, s.make_plan(p)).first;
    const Plan& plan = it->second;
    s.set_vector(p, plan);
    check_blas(cublasLtMatmul(s.handle.get(), plan.operation.get(), &p.alpha, p.b.data,
                              plan.first.get(), p.a.data, plan.second.get(), &p.beta, p.c,
                              plan.result.get(), p.c, plan.result.get(), &plan.algorithm,
                              s.workspace, s.workspace_bytes, s.stream),
               p);
    done = plan.epilogue;
  }
  if (p.bias != nullptr && done != CUBLASLT_EPILOGUE_BIAS && !empty)
    scale_and_add_bias(p.m, p.n, Compute<T>(1), p.bias, p.c, p.c_stride, p.batch, p.c_batch,
                       s.stream);
  if (p.a_sums != nullptr && done != CUBLASLT_EPILOGUE_BGRADB)
    sum_rows(p.m, p.k, p.a.data, p.a.transposed ? 1 : p.a.stride, p.a.transposed ? p.a.stride : 1,
             p.a_sums, s.stream);
  // A sum over nothing is 0.
  if (empty && p.k == 0)
    scale_and_add_bias(p.m, p.n, p.beta, p.bias, p.c, p.c_stride, p.batch, p.c_batch, s.stream);
}

size_t Blas::shapes() const {
  return state_->plans.size();
}

template void Blas::gemm(const Product<float>&);
template void Blas::gemm(const Product<double>&);
template void Blas::gemm(const Product<f16>&);
template void Blas::gemm(const Product<bf16>&);

}  // namespace minim::cuda
