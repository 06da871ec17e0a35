#pragma once

#include <span>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "core/error.h"
#include "tests/cuda_emulator/emulator.h"

namespace minim::emulator {

// Device memory for a test; its contents are copied in and out. Failures are Errors.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t n) : n_(n) { require(cudaMalloc(&data_, n * sizeof(T))); }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    require(cudaMemcpy(data_, values.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> host(n_);
    require(cudaMemcpy(host.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  static void require(cudaError_t error) {
    check(error == cudaSuccess, "device: {} ({})", cudaGetErrorString(error), explanation());
  }

  T* data_ = nullptr;
  size_t n_;
};

// A device as new and other options for one test, the old ones after it.
class Emulation {
 public:
  explicit Emulation(Order order = Order::forward, bool deferred = false) : before_(options()) {
    reset();
    options() = Options();
    options().order = order;
    options().deferred = deferred;
  }
  ~Emulation() {
    reset();
    options() = before_;
  }
  Emulation(const Emulation&) = delete;
  Emulation& operator=(const Emulation&) = delete;

 private:
  Options before_;
};

// 0.5, -1.25, 2, ..: n numbers of which no two near ones are equal.
inline std::vector<float> some_numbers(size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i)
    values[i] = float(int(i * 37 % 101) - 50) * 0.25f;
  return values;
}

}  // namespace minim::emulator
