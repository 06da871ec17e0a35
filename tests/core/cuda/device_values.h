#pragma once

#include <vector>

#include "core/cuda/launch.h"

namespace minim::cuda {

// Device memory for a test; its contents are copied in and out. What is not given is filled with
// bytes 0xff: NaN in every floating type.
template <class T>
class DeviceValues {
 public:
  explicit DeviceValues(size_t n) : n_(n) {
    check_cuda(cudaMalloc(&data_, bytes() + 1), "test");
    check_cuda(cudaMemset(data_, 0xff, bytes() + 1), "test");
  }
  explicit DeviceValues(const std::vector<T>& values) : DeviceValues(values.size()) {
    check_cuda(cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice), "test");
  }
  ~DeviceValues() { cudaFree(data_); }
  DeviceValues(const DeviceValues&) = delete;
  DeviceValues& operator=(const DeviceValues&) = delete;

  T* data() const { return data_; }
  // Waits for all work of the device.
  std::vector<T> values() const {
    std::vector<T> host(n_);
    check_cuda(cudaDeviceSynchronize(), "test");
    check_cuda(cudaMemcpy(host.data(), data_, bytes(), cudaMemcpyDeviceToHost), "test");
    return host;
  }

 private:
  size_t bytes() const { return n_ * sizeof(T); }

  T* data_ = nullptr;
  size_t n_;
};

// A stream for a test.
class TestStream {
 public:
  TestStream() { check_cuda(cudaStreamCreate(&stream_), "test"); }
  ~TestStream() { cudaStreamDestroy(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// What `work` gives to the stream, captured into a graph and launched as that.
template <class Work>
void run_as_graph(cudaStream_t stream, const Work& work) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "test");
  work();
  check_cuda(cudaStreamEndCapture(stream, &graph), "test");
  check_cuda(cudaGraphInstantiate(&executable, graph, 0), "test");
  check_cuda(cudaGraphLaunch(executable, stream), "test");
  check_cuda(cudaStreamSynchronize(stream), "test");
  check_cuda(cudaGraphExecDestroy(executable), "test");
  check_cuda(cudaGraphDestroy(graph), "test");
}

}  // namespace minim::cuda
