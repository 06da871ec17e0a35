#include <algorithm>
#include <csignal>
#include <functional>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "core/cuda/launch.h"
#include "tests/cuda_emulator/device_array.h"
#include "tests/cuda_emulator/kernels.h"

// The runtime's calls answer as those of a real one do.
namespace minim::emulator {

namespace {

__global__ void fill_kernel(float* y, float value) {
  y[threadIdx.x] = value;
}

__global__ void dynamic_kernel(unsigned char* y, int size) {
  DYNAMIC_SHARED(unsigned char, bytes);
  for (int i = int(threadIdx.x); i < size; i += int(blockDim.x))
    bytes[i] = 1;
  __syncthreads();
  if (threadIdx.x == 0) y[0] = bytes[size - 1];
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST_CASE("A launch outside of the limits is an error that names kernel and shape") {
  const Emulation emulation;
  const DeviceArray<float> y(1024);
  const auto with = [&](const cuda::LaunchShape& shape) {
    return error_of([&] { cuda::launch(fill_kernel, shape, y.data(), 1.0f); });
  };
  CHECK(with({.threads = {1024}}) == "none");
  CHECK(with({.blocks = {2}, .threads = {2048}}) ==
        "minim::emulator::(anonymous namespace)::fill_kernel(float*, float): a launch of 2 x 1 x 1 "
        "blocks of 2048 x 1 x 1 threads with 0 bytes of shared memory failed: a block has 1 to "
        "1024 threads");
  for (const cuda::LaunchShape& shape :
       {cuda::LaunchShape{.blocks = {0}}, cuda::LaunchShape{.blocks = {1, 65536}},
        cuda::LaunchShape{.blocks = {int64_t(1) << 31}}})
    CHECK(with(shape).find("a grid has 1 to 2147483647 x 65535 x 65535 blocks") !=
          std::string::npos);
  CHECK(with({.threads = {32, 32, 2}}).find("1 to 1024 threads") != std::string::npos);
  CHECK(with({.shared = 228 << 10}).find("failed: invalid argument") != std::string::npos);
}

TEST_CASE("The runtime refuses what the driver does") {
  const Emulation emulation;
  const DeviceArray<float> y(1024);
  const auto launch_with = [&](dim3 grid, dim3 block, size_t shared) {
    return launch_kernel(fill_kernel, grid, block, shared, nullptr, y.data(), 1.0f);
  };
  CHECK(launch_with(dim3(0), dim3(1), 0) == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
  CHECK(cudaGetLastError() == cudaSuccess);  // told once
  CHECK(launch_with(dim3(1), dim3(1025), 0) == cudaErrorInvalidConfiguration);
  CHECK(launch_with(dim3(1), dim3(1, 1, 65), 0) == cudaErrorInvalidConfiguration);
  CHECK(launch_with(dim3(1, 1, 65536), dim3(1), 0) == cudaErrorInvalidConfiguration);
  CHECK(launch_with(dim3(1), dim3(1), 49153) == cudaErrorInvalidValue);
  CHECK(
      explanation().find("49153 bytes of dynamic shared memory, where the kernel may use 49152") !=
      std::string::npos);
  CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(fill_kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, 100000) == cudaSuccess);
  CHECK(launch_with(dim3(1), dim3(1), 100000) == cudaSuccess);
}

TEST_CASE("A kernel may use 227 KiB of shared memory, all of it") {
  const Emulation emulation;
  const DeviceArray<unsigned char> y(1);
  const int size = 227 << 10;
  cuda::launch(dynamic_kernel, {.threads = {64}, .shared = size_t(size)}, y.data(), size);
  CHECK(y.values()[0] == 1);
}

TEST_CASE("Memory runs out at the size of the device") {
  const Emulation emulation;
  options().device_bytes = 1000;
  void *p = nullptr, *q = nullptr;
  CHECK(cudaMalloc(&p, 600) == cudaSuccess);
  CHECK(cudaMalloc(&q, 600) == cudaErrorMemoryAllocation);
  CHECK(q == nullptr);
  CHECK(explanation() == "600 bytes asked for, 600 of 1000 in use");
  size_t available = 0, total = 0;
  CHECK(cudaMemGetInfo(&available, &total) == cudaSuccess);
  CHECK(available == 400);
  CHECK(total == 1000);
  CHECK(cudaFree(p) == cudaSuccess);
  CHECK(cudaMalloc(&q, 600) == cudaSuccess);
  CHECK(statistics().allocations == 4);
}

TEST_CASE("A machine without a device, or with an old driver, says so") {
  const Emulation emulation;
  int count = -1;
  options().devices = 0;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  CHECK(count == 0);
  void* p = nullptr;
  CHECK(cudaMalloc(&p, 4) == cudaErrorNoDevice);
  options().devices = 1;
  options().driver_version = 11000;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver);
  options() = Options();
  CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 1);
  CHECK(cudaSetDevice(1) == cudaErrorInvalidDevice);
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
  CHECK(properties.warpSize == 32);
  CHECK(std::string(cudaGetErrorName(cudaErrorNoDevice)) == "cudaErrorNoDevice");
}

TEST_CASE("A captured stream is run when its graph is launched, each time") {
  for (const bool deferred : {false, true}) {
    const Emulation emulation(Order::forward, deferred);
    const DeviceArray<float> x(std::vector<float>{1, 2, 3, 4, 5}), y(std::vector<float>(5));
    float* pinned = nullptr;
    cudaMallocHost(&pinned, 5 * sizeof(float));
    cudaStream_t a = nullptr, b = nullptr;
    cudaEvent_t event = nullptr;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;

    CHECK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal) == cudaSuccess);
    axpy(y.data(), x.data(), 2.0f, 5, a);
    cudaEventRecord(event, a);
    cudaStreamWaitEvent(b, event, 0);  // b joins the capture
    cudaMemcpyAsync(pinned, y.data(), 5 * sizeof(float), cudaMemcpyDeviceToHost, b);
    cudaStreamCaptureStatus status{};
    cudaStreamIsCapturing(b, &status);
    CHECK(status == cudaStreamCaptureStatusActive);
    cudaEventRecord(event, b);
    cudaStreamWaitEvent(a, event, 0);
    CHECK(cudaStreamEndCapture(a, &graph) == cudaSuccess);
    size_t nodes = 0;
    cudaGraphGetNodes(graph, nullptr, &nodes);
    CHECK(nodes == 2);
    CHECK(statistics().launches == 0);

    CHECK(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
    cudaGraphDestroy(graph);
    for (int run = 1; run <= 3; ++run) {
      CHECK(cudaGraphLaunch(executable, a) == cudaSuccess);
      CHECK(cudaStreamSynchronize(a) == cudaSuccess);
      CHECK(pinned[4] == 10.0f * float(run));
    }
    CHECK(statistics().launches == 3);
  }
}

TEST_CASE("What a graph cannot hold breaks its capture") {
  const Emulation emulation;
  const DeviceArray<float> x(std::vector<float>(8)), y(std::vector<float>(8));
  cudaStream_t a = nullptr, b = nullptr, blocking = nullptr;
  cudaEvent_t event = nullptr;
  cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
  cudaStreamCreate(&blocking);
  cudaEventCreate(&event);
  cudaGraph_t graph = nullptr;
  const auto capture = [&](const std::function<cudaError_t()>& body) {
    cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
    const cudaError_t error = body();
    CHECK(cudaStreamEndCapture(a, &graph) != cudaSuccess);
    CHECK(graph == nullptr);
    return error;
  };
  void* p = nullptr;
  std::vector<float> host(8);
  CHECK(capture([&] { return cudaStreamSynchronize(a); }) == cudaErrorStreamCaptureUnsupported);
  CHECK(capture([&] { return cudaDeviceSynchronize(); }) == cudaErrorStreamCaptureUnsupported);
  CHECK(capture([&] { return cudaMalloc(&p, 4); }) == cudaErrorStreamCaptureUnsupported);
  CHECK(capture([&] {
          return cudaMemcpyAsync(x.data(), host.data(), 32, cudaMemcpyHostToDevice, a);
        }) == cudaErrorStreamCaptureUnsupported);
  cudaEventRecord(event, b);
  CHECK(capture([&] { return cudaStreamWaitEvent(a, event, 0); }) ==
        cudaErrorStreamCaptureIsolation);
  CHECK(capture([&] {  // b takes part, and is not waited for
          cudaEventRecord(event, a);
          cudaStreamWaitEvent(b, event, 0);
          axpy(y.data(), x.data(), 1.0f, 8, b);
          return cudaEventSynchronize(event);
        }) == cudaErrorCapturedEvent);
  cudaStreamBeginCapture(blocking, cudaStreamCaptureModeGlobal);
  CHECK(cudaMemsetAsync(x.data(), 0, 32, nullptr) == cudaErrorStreamCaptureImplicit);
  cudaStreamEndCapture(blocking, &graph);
}

TEST_CASE("Deferred work is done when somebody waits for it, or asks a second time") {
  const Emulation emulation(Order::forward, true);
  const DeviceArray<float> x(some_numbers(8)), y(some_numbers(8));
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  cudaStreamCreate(&stream);
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  cudaEventRecord(begin, stream);
  axpy(y.data(), x.data(), 2.0f, 8, stream);
  cudaEventRecord(end, stream);
  CHECK(statistics().launches == 0);
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end) == cudaErrorNotReady);
  CHECK(cudaEventQuery(end) == cudaErrorNotReady);
  CHECK(cudaEventQuery(end) == cudaSuccess);
  CHECK(statistics().launches == 1);
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end) == cudaSuccess);
  CHECK(milliseconds >= 0);
}

TEST_CASE("Options are words, and others are refused") {
  const Options o = parse_options("order=random:7,deferred,nochecks");
  CHECK(o.order == Order::random);
  CHECK(o.seed == 7);
  CHECK(o.deferred);
  CHECK(!o.checks);
  CHECK(o.protect);
  CHECK(parse_options("").checks);
  CHECK(error_of([] { parse_options("deferred,fast"); }) ==
        "CUDA_EMULATOR: \"fast\" is none of order=forward, order=reverse, order=random:SEED, "
        "deferred, nochecks, noprotect");
}

TEST_CASE("Where nobody collects, a finding is printed and ends the program") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    std::signal(SIGABRT, SIG_DFL);
    cudaFree(ends);
    _exit(0);
  }
  close(ends[1]);
  std::string text(1000, '\0');
  text.resize(size_t(std::max<ssize_t>(read(ends[0], text.data(), text.size()), 0)));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
  CHECK(text.starts_with("cuda emulator: invalid free: cudaFree of 0x"));
}

TEST_CASE("Host functions run in the order of their stream") {
  const Emulation emulation(Order::forward, true);
  cudaStream_t stream = nullptr;
  cudaStreamCreate(&stream);
  std::string order;
  cudaLaunchHostFunc(
      stream, [](void* s) { *static_cast<std::string*>(s) += "a"; }, &order);
  cudaLaunchHostFunc(
      stream, [](void* s) { *static_cast<std::string*>(s) += "b"; }, &order);
  CHECK(order.empty());
  cudaStreamSynchronize(stream);
  CHECK(order == "ab");
}

}  // namespace

}  // namespace minim::emulator
