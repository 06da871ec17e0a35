#include <doctest/doctest.h>

#include "tests/cuda_emulator/device_array.h"
#include "tests/cuda_emulator/kernels.h"
#include "tests/cuda_emulator/library.h"

// Stand-ins of libraries: their work lies on streams as kernels do, and what they use is checked.
namespace minim::emulator {

namespace {

// y[r] = x[r, 0] + .. + x[r, columns - 1].   x: [rows, pitch], of which the first columns count
cudaError_t sum_rows(float* y, const float* x, size_t rows, size_t columns, size_t pitch,
                     cudaStream_t stream = nullptr) {
  return run_library("sum_rows", stream,
                     {{x, columns * sizeof(float), rows, pitch * sizeof(float)}},
                     {{y, rows * sizeof(float)}}, [=] {
                       for (size_t r = 0; r < rows; ++r) {
                         y[r] = 0;
                         for (size_t c = 0; c < columns; ++c)
                           y[r] += x[r * pitch + c];
                       }
                     });
}

TEST_CASE("A library's work waits its turn on the stream") {
  for (const bool deferred : {false, true}) {
    const Emulation emulation(Order::forward, deferred);
    const Collect collect;
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    const DeviceArray<float> x(std::vector<float>{1, 2, 3, 4, 5, 6}), y(2);
    axpy(x.data(), x.data(), 1.0f, 6, stream);
    CHECK(sum_rows(y.data(), x.data(), 2, 2, 3, stream) == cudaSuccess);
    cudaStreamSynchronize(stream);
    CHECK(y.values() == std::vector<float>{6, 18});
    CHECK(collect.findings.empty());
  }
}

TEST_CASE("Operands of a library are checked: bounds, life time, contents, streams") {
  const auto found = [](const auto& body) {
    const Emulation emulation;
    const Collect collect;
    body();
    return collect.findings.empty() ? std::string("nothing") : collect.findings[0].text;
  };
  CHECK(found([] {
          const DeviceArray<float> x(std::vector<float>(6)), y(2);
          sum_rows(y.data(), x.data(), 2, 3, 4);
        }) == "out of bounds: sum_rows reads 28 bytes from byte 0 of allocation 1 of 24 bytes");
  CHECK(found([] {
          const DeviceArray<float> y(2);
          float* x = nullptr;
          cudaMalloc(reinterpret_cast<void**>(&x), 24);
          cudaFree(x);
          sum_rows(y.data(), x, 2, 3, 3);
        }) ==
        "use after free: sum_rows reads 24 bytes from byte 0 of allocation 2 of 24 bytes, "
        "which is freed");
  CHECK(found([] {
          const DeviceArray<float> y(2);
          sum_rows(y.data(), some_numbers(6).data(), 2, 3, 3);
        }) == "host pointer: sum_rows reads 24 bytes from host memory");
  if (!kernels_are_instrumented()) return;
  CHECK(found([] {
          const DeviceArray<float> x(6), y(2);
          cudaMemset(x.data(), 0, 16);
          sum_rows(y.data(), x.data(), 2, 3, 3);
        }) == "uninitialised read: sum_rows: nobody wrote byte 16 of allocation 1 of 24 bytes");
  CHECK(
      found([] {
        cudaStream_t stream = nullptr;
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        const DeviceArray<float> x(std::vector<float>(6)), y(2);
        axpy(x.data(), x.data(), 1.0f, 6, stream);
        sum_rows(y.data(), x.data(), 2, 3, 3);
      })
          .starts_with("race between streams: sum_rows: byte 0 of allocation 1 of 24 bytes is read "
                       "by a copy, memset or library, written before by another launch"));
}

}  // namespace

}  // namespace minim::emulator
