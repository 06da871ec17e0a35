#include <bit>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "core/half.h"
#include "tests/cuda_emulator/checker.h"
#include "tests/cuda_emulator/cublaslt.h"
#include "tests/cuda_emulator/device_memory.h"
#include "tests/cuda_emulator/findings.h"

// What a product of the stand-in does on its stream.

namespace minim::emulator {

namespace {

double load(const void* p, size_t i, cudaDataType type) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<const double*>(p)[i];
    case CUDA_R_16F:
      return double(static_cast<const f16*>(p)[i]);
    case CUDA_R_16BF:
      return double(static_cast<const bf16*>(p)[i]);
    default:
      return double(static_cast<const float*>(p)[i]);
  }
}

void store(void* p, size_t i, cudaDataType type, double value) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(p)[i] = value;
      break;
    case CUDA_R_16F:
      static_cast<f16*>(p)[i] = f16(float(value));
      break;
    case CUDA_R_16BF:
      static_cast<bf16*>(p)[i] = bf16(float(value));
      break;
    default:
      static_cast<float*>(p)[i] = float(value);
  }
}

// What tensor cores make of a float: 11 bits of it, rounded to nearest even.
float to_tf32(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return x;
  return std::bit_cast<float>((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
}

// Where a kernel would have failed, so does the work, and with it the device.
bool lies_in_memory(const void* p, size_t bytes, const char* what, Allocation*& allocation) {
  allocation = find_allocation(p);
  if (allocation != nullptr && allocation->live && uintptr_t(p) + bytes <= allocation->end())
    return true;
  const bool freed = allocation != nullptr && !allocation->live;
  report(freed                  ? Problem::use_after_free
         : is_device_address(p) ? Problem::out_of_bounds
                                : Problem::host_pointer,
         fmt::format("cuBLASLt uses {}, {} bytes from {}", what, bytes,
                     is_device_address(p) ? describe_place(p) : "an address of host memory"));
  corrupt_context(cudaErrorIllegalAddress);
  return false;
}

// Notes the read or write of every matrix of a batch, column by column.
bool note(const void* data, const MatrixLayout& layout, bool write, const char* what) {
  const size_t size = bytes_of(layout.type);
  for (int64_t n = 0; n < layout.batch; ++n) {
    const auto* begin = static_cast<const char*>(data) + n * layout.batch_stride * int64_t(size);
    const size_t bytes =
        (size_t(layout.stride) * size_t(layout.columns - 1) + size_t(layout.rows)) * size;
    Allocation* allocation = nullptr;
    if (!lies_in_memory(begin, bytes, what, allocation)) return false;
    for (uint64_t column = 0; column < layout.columns; ++column) {
      const size_t offset =
          uintptr_t(begin) - allocation->begin + size_t(column) * size_t(layout.stride) * size;
      (write ? checker::write_range : checker::read_range)(
          *allocation, offset, size_t(layout.rows) * size, fmt::format("cuBLASLt, {}", what));
    }
  }
  return true;
}

MatrixLayout vector_layout(const MatmulWork& w, uint64_t length) {
  return {w.d.type, length, 1, int64_t(length), 1, 0};
}

bool note_everything(const MatmulWork& w, uint64_t sums) {
  const bool bias = w.operation.epilogue == CUBLASLT_EPILOGUE_BIAS;
  return note(w.a_data, w.a, false, "matrix A") && note(w.b_data, w.b, false, "matrix B") &&
         (w.beta == 0 || note(w.c_data, w.c, false, "matrix C")) &&
         (!bias || note(w.operation.vector, vector_layout(w, w.d.rows), false, "the bias")) &&
         (w.workspace_bytes == 0 ||
          note(w.workspace, {CUDA_R_32F, w.workspace_bytes / 4, 1, 1, 1, 0}, true,
               "the workspace")) &&
         (sums == 0 ||
          note(w.operation.vector, vector_layout(w, sums), true, "the gradient of the bias")) &&
         note(w.d_data, w.d, true, "matrix D");
}

// The factors of one product, in order, as the arithmetic sees them.
template <class C>
struct Factors {
  std::vector<C> a, b;  // [m, k], [n, k]

  Factors(const MatmulWork& w, int64_t n, size_t rows, size_t columns, size_t inner)
      : a(rows * inner), b(columns * inner) {
    const auto at = [n](const void* data, const MatrixLayout& layout) {
      return static_cast<const char*>(data) +
             n * layout.batch_stride * int64_t(bytes_of(layout.type));
    };
    const auto round = [&w](double x) {
      return w.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? C(to_tf32(float(x))) : C(x);
    };
    const void *pa = at(w.a_data, w.a), *pb = at(w.b_data, w.b);
    const bool ta = w.operation.transposed_a != CUBLAS_OP_N;
    const bool tb = w.operation.transposed_b != CUBLAS_OP_N;
    for (size_t p = 0; p < inner; ++p) {
      for (size_t i = 0; i < rows; ++i)
        a[i * inner + p] =
            round(load(pa, ta ? i * size_t(w.a.stride) + p : p * size_t(w.a.stride) + i, w.a.type));
      for (size_t j = 0; j < columns; ++j)
        b[j * inner + p] =
            round(load(pb, tb ? p * size_t(w.b.stride) + j : j * size_t(w.b.stride) + p, w.b.type));
    }
  }
};

template <class C>
void compute(const MatmulWork& w, size_t sums) {
  const size_t rows = w.d.rows, columns = w.d.columns, inner = size_t(w.inner());
  for (int64_t n = 0; n < w.d.batch; ++n) {
    const Factors<C> f(w, n, rows, columns, inner);
    const size_t c_at = size_t(n * w.c.batch_stride), d_at = size_t(n * w.d.batch_stride);
    for (size_t j = 0; j < columns; ++j)
      for (size_t i = 0; i < rows; ++i) {
        C sum = 0;
        for (size_t p = 0; p < inner; ++p)
          sum += f.a[i * inner + p] * f.b[j * inner + p];
        C value = C(w.alpha) * sum;
        if (w.beta != 0)
          value += C(w.beta) * C(load(w.c_data, c_at + j * size_t(w.c.stride) + i, w.c.type));
        if (w.operation.epilogue == CUBLASLT_EPILOGUE_BIAS)
          value += C(load(w.operation.vector, i, w.d.type));
        store(w.d_data, d_at + j * size_t(w.d.stride) + i, w.d.type, double(value));
      }
    const std::vector<C>& summed = w.operation.epilogue == CUBLASLT_EPILOGUE_BGRADA ? f.a : f.b;
    for (size_t i = 0; i < sums; ++i) {
      C sum = 0;
      for (size_t p = 0; p < inner; ++p)
        sum += summed[i * inner + p];
      store(w.operation.vector, i, w.d.type, double(sum));
    }
  }
}

}  // namespace

size_t bytes_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_64F:
      return 8;
    case CUDA_R_32F:
      return 4;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    default:
      return 0;
  }
}

void run_matmul(const MatmulWork& w) {
  const size_t sums = w.operation.epilogue == CUBLASLT_EPILOGUE_BGRADA   ? w.d.rows
                      : w.operation.epilogue == CUBLASLT_EPILOGUE_BGRADB ? w.d.columns
                                                                         : 0;
  if (!note_everything(w, sums)) return;
  if (w.workspace_bytes > 0) std::memset(w.workspace, 0xff, w.workspace_bytes);
  if (w.operation.scale == CUDA_R_64F)
    compute<double>(w, sums);
  else
    compute<float>(w, sums);
}

}  // namespace minim::emulator
