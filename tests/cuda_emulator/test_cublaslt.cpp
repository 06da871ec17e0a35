#include <cstring>
#include <functional>

#include <doctest/doctest.h>

#include "core/cuda/gemm.h"
#include "tests/cuda_emulator/cublaslt.h"
#include "tests/cuda_emulator/device_array.h"

// The stand-in for cuBLASLt refuses what the library refuses, and its work is checked as kernels
// are. That it multiplies is tested with core/cuda/gemm.
namespace minim::emulator {
namespace {

// One product d = a b of column-major matrices, call by call as a program makes it; a test changes
// what it is about.
struct Calls {
  cudaDataType type = CUDA_R_32F, scale = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  uint64_t m = 8, n = 8, k = 128;
  int64_t stride = 128;  // between columns
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* vector = nullptr;
  uint64_t workspace_allowed = 1 << 16;
  uint32_t alignment = 256;
  std::function<void(Calls&)> before_matmul = [](Calls&) {};

  void *a = nullptr, *b = nullptr, *d = nullptr, *workspace = nullptr;
  size_t workspace_bytes = 1 << 16;
  cublasLtMatmulHeuristicResult_t found{};

  // The first status that is not success.
  cublasStatus_t run(cudaStream_t stream = nullptr) {
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t operation = nullptr;
    cublasLtMatrixLayout_t a_layout = nullptr, b_layout = nullptr, d_layout = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    const auto call = [&status](cublasStatus_t s) {
      if (status == CUBLAS_STATUS_SUCCESS) status = s;
    };
    call(cublasLtCreate(&handle));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    call(cublasLtMatmulDescCreate(&operation, compute, scale));
    call(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                        sizeof(epilogue)));
    call(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector,
                                        sizeof(vector)));
    call(cublasLtMatrixLayoutCreate(&a_layout, type, m, k, stride));
    call(cublasLtMatrixLayoutCreate(&b_layout, type, k, n, stride));
    call(cublasLtMatrixLayoutCreate(&d_layout, type, m, n, stride));
    call(cublasLtMatmulPreferenceCreate(&preference));
    call(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                              &workspace_allowed, sizeof(workspace_allowed)));
    call(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, sizeof(alignment)));
    int count = 0;
    call(cublasLtMatmulAlgoGetHeuristic(handle, operation, a_layout, b_layout, d_layout, d_layout,
                                        preference, 1, &found, &count));
    before_matmul(*this);
    const double one = 1, zero = 0;
    const float one_float = 1, zero_float = 0;
    const bool is_double = scale == CUDA_R_64F;
    call(cublasLtMatmul(handle, operation, is_double ? (const void*)&one : &one_float, a, a_layout,
                        b, b_layout, is_double ? (const void*)&zero : &zero_float, d, d_layout, d,
                        d_layout, &found.algo, workspace, workspace_bytes, stream));
    cublasLtMatmulPreferenceDestroy(preference);
    for (const auto layout : {a_layout, b_layout, d_layout})
      cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(operation);
    cublasLtDestroy(handle);
    return status;
  }
};

// Calls with memory for them; `operand` elements in each of a and b.
struct Memory {
  explicit Memory(size_t operand = 128 * 128)
      : a(std::vector<float>(operand, 1.0f)),
        b(std::vector<float>(operand, 1.0f)),
        d(128 * 128),
        workspace(1 << 16) {}

  Calls calls() const {
    Calls c;
    c.a = a.data();
    c.b = b.data();
    c.d = d.data();
    c.workspace = workspace.data();
    return c;
  }

  Emulation emulation;
  DeviceArray<float> a, b, d;
  DeviceArray<uint8_t> workspace;
};

void refuses(Calls calls, cublasStatus_t status, const char* why) {
  CHECK(calls.run() == status);
  CHECK(blas_explanation() == why);
}

TEST_CASE("cublasLt: a right product runs, and nothing is left") {
  const Memory memory;
  Calls calls = memory.calls();
  CHECK(calls.run() == CUBLAS_STATUS_SUCCESS);
  CHECK(calls.found.workspaceSize > 0);
  CHECK(live_blas_objects() == 0);
}

TEST_CASE("cublasLt: types, layouts and epilogues that do not exist are refused") {
  const Memory memory;
  Calls c = memory.calls();
  c.compute = CUBLAS_COMPUTE_16F;
  refuses(c, CUBLAS_STATUS_NOT_SUPPORTED, "a combination of types that the library does not have");
  c = memory.calls();
  c.stride = 7;
  refuses(c, CUBLAS_STATUS_INVALID_VALUE, "columns of 8 rows, 7 apart");
  c = memory.calls();
  c.epilogue = CUBLASLT_EPILOGUE_GELU;
  refuses(c, CUBLAS_STATUS_NOT_SUPPORTED, "epilogue 32 is not emulated");
  c = memory.calls();
  c.epilogue = CUBLASLT_EPILOGUE_BIAS;
  refuses(c, CUBLAS_STATUS_INVALID_VALUE, "the vector of the epilogue is null");
  c = memory.calls();
  c.type = CUDA_R_64F;
  c.scale = CUDA_R_64F;
  c.compute = CUBLAS_COMPUTE_64F;
  c.epilogue = CUBLASLT_EPILOGUE_BIAS;
  refuses(c, CUBLAS_STATUS_NOT_SUPPORTED, "f64 has no epilogues");
}

TEST_CASE("cublasLt: an algorithm is held to what it was chosen for") {
  const Memory memory;
  Calls c = memory.calls();
  c.workspace = nullptr;
  refuses(c, CUBLAS_STATUS_INVALID_VALUE,
          "a workspace that is null, or not at a multiple of 256 bytes");
  c = memory.calls();
  c.workspace_bytes = 256;
  refuses(c, CUBLAS_STATUS_INVALID_VALUE,
          "a workspace of 256 bytes, where the algorithm uses 1024");
  c = memory.calls();
  c.a = static_cast<float*>(c.a) + 1;
  refuses(c, CUBLAS_STATUS_INVALID_VALUE,
          "a matrix is less aligned than the algorithm was asked for");
  c.alignment = 4;
  CHECK(c.run() == CUBLAS_STATUS_SUCCESS);
  c = memory.calls();
  c.before_matmul = [](Calls& calls) { std::memset(&calls.found.algo, 0, 8); };
  refuses(c, CUBLAS_STATUS_INVALID_VALUE, "the algorithm is for another product");
}

TEST_CASE("cublasLt: a product outside of its memory, or of what nobody wrote, is found") {
  {
    const Memory memory(128 * 127);
    const Collect collect;
    Calls c = memory.calls();
    c.run();
    REQUIRE(collect.findings.size() == 1);
    CHECK(collect.findings[0].problem == Problem::out_of_bounds);
  }
  const Memory memory;
  const DeviceArray<float> unwritten(128 * 128);
  const Collect collect;
  Calls c = memory.calls();
  c.b = unwritten.data();
  c.run();
  REQUIRE(!collect.findings.empty());
  CHECK(collect.findings[0].problem == Problem::uninitialised_read);
  CHECK(collect.findings[0].text.starts_with(
      "uninitialised read: cuBLASLt, matrix B: nobody wrote byte 0 of allocation"));
}

TEST_CASE("cublasLt: two streams may not share a workspace") {
  const Memory memory;
  const DeviceArray<float> other(128 * 128);
  const Collect collect;
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams)
    cudaStreamCreate(&stream);
  Calls c = memory.calls();
  c.run(streams[0]);
  c.d = other.data();
  c.run(streams[1]);
  REQUIRE(!collect.findings.empty());
  CHECK(collect.findings[0].problem == Problem::stream_race);
  for (cudaStream_t stream : streams)
    cudaStreamDestroy(stream);
}

TEST_CASE("cublasLt: without a device there is no handle, which gemm says") {
  const Emulation emulation;
  options().devices = 0;
  CHECK_THROWS_WITH_AS(cuda::Blas(nullptr, nullptr, 0),
                       "gemm: cuBLASLt cannot be used, it says \"the library was not initialized\"",
                       Error);
}

}  // namespace
}  // namespace minim::emulator
