#include <cstring>
#include <functional>

#include <doctest/doctest.h>

#include "core/cuda/launch.h"
#include "tests/cuda_emulator/device_array.h"
#include "tests/cuda_emulator/kernels.h"

// The net holds for host code too: memory, copies, streams, events, graphs and launches used
// wrongly.
namespace minim::emulator {

namespace {

constexpr int n = 256;
constexpr size_t bytes = n * sizeof(float);

// Two streams that do not wait for the legacy one, an event, a pinned and a device buffer.
struct Setting {
  cudaStream_t a = nullptr, b = nullptr;
  cudaEvent_t event = nullptr;
  float* pinned = nullptr;
  DeviceArray<float> x{some_numbers(n)}, y{some_numbers(n)};

  Setting() {
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreate(&event);
    cudaMallocHost(&pinned, bytes);
    std::memset(pinned, 0, bytes);
  }
};

struct Case {
  const char* bug;
  Problem problem;
  const char* words;
  std::function<void(Setting&)> run;
  bool needs_checks = false;
};

std::vector<Case> host_cases() {
  using P = Problem;
  return {
      {"the host reads device memory", P::host_access, "byte 8 of allocation 1",
       [](Setting& s) { static_cast<void>(*static_cast<volatile float*>(s.x.data() + 2)); }},
      {"the host writes device memory", P::host_access, "byte 0 of allocation 1",
       [](Setting& s) { *static_cast<volatile float*>(s.x.data()) = 1; }},
      {"memory is freed twice", P::invalid_free, "for the second time",
       [](Setting&) {
         void* p = nullptr;
         cudaMalloc(&p, 100);
         cudaFree(p);
         CHECK(cudaFree(p) == cudaErrorInvalidValue);
       }},
      {"an address inside of an allocation is freed", P::invalid_free, "inside of allocation 1",
       [](Setting& s) { cudaFree(s.x.data() + 1); }},
      {"host memory is freed as pinned", P::invalid_free, "no pinned buffer",
       [](Setting&) {
         int local = 0;
         cudaFreeHost(&local);
       }},
      {"a memset goes past the end", P::invalid_copy, "memset of 1028 bytes",
       [](Setting& s) { CHECK(cudaMemset(s.x.data(), 0, bytes + 4) == cudaErrorInvalidValue); }},
      {"a copy goes past the end", P::invalid_copy, "copy of the range of 1024 bytes",
       [](Setting& s) {
         std::vector<float> host(n);
         cudaMemcpy(host.data(), s.x.data() + 1, bytes, cudaMemcpyDeviceToHost);
       }},
      {"a copy is larger than the pinned buffer", P::invalid_copy, "the pinned buffer has 1020",
       [](Setting& s) {
         cudaMemcpyAsync(s.pinned + 1, s.x.data(), bytes, cudaMemcpyDeviceToHost, s.a);
       }},
      {"a copy names the other direction", P::invalid_copy, "another direction",
       [](Setting& s) {
         std::vector<float> host(n);
         cudaMemcpy(host.data(), s.x.data(), bytes, cudaMemcpyHostToDevice);
       }},
      {"memory that nobody wrote is copied to the host", P::uninitialised_read,
       "nobody wrote byte 512",
       [](Setting&) {
         const DeviceArray<float> z(n);
         cudaMemset(z.data(), 0, bytes / 2);
         z.values();
       }},
      {"freed memory is copied", P::use_after_free, "which is freed",
       [](Setting& s) {
         float* p = nullptr;
         cudaMalloc(&p, bytes);
         cudaFree(p);
         cudaMemcpy(p, s.x.data(), bytes, cudaMemcpyDeviceToDevice);
       }},
      {"a kernel gets freed memory", P::use_after_free, "argument 1 of",
       [](Setting& s) {
         float* p = nullptr;
         cudaMalloc(&p, bytes);
         cudaFree(p);
         axpy(s.x.data(), p, 2.0f, n);
         CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
       }},
      {"a kernel gets host memory", P::host_pointer, "argument 1 of",
       [](Setting& s) { axpy(s.x.data(), some_numbers(n).data(), 2.0f, n); }},
      {"a kernel gets host memory in a struct", P::host_pointer, "memory of the host",
       [](Setting& s) { axpy_struct(s.x.data(), some_numbers(n).data(), 2.0f, n); }, true},
      {"a kernel gets pinned memory, which is far away", P::host_pointer, "memory of the host",
       [](Setting& s) { axpy_struct(s.x.data(), s.pinned, 2.0f, n); }, true},
      {"a kernel gets freed memory in a struct", P::use_after_free, "read of 4 bytes at byte 0",
       [](Setting& s) {
         float* p = nullptr;
         cudaMalloc(&p, bytes);
         cudaMemset(p, 0, bytes);
         cudaFree(p);
         axpy_struct(s.x.data(), p, 2.0f, n);
       },
       true},
      {"a stream does not wait for another's kernel", P::stream_race, "its stream does not wait",
       [](Setting& s) {
         axpy(s.y.data(), s.x.data(), 2.0f, n, s.a);
         axpy(s.y.data(), s.x.data(), 2.0f, n, s.b);
       },
       true},
      {"an event is waited for before it is recorded", P::stream_race, "its stream does not wait",
       [](Setting& s) {
         axpy(s.y.data(), s.x.data(), 2.0f, n, s.a);
         cudaStreamWaitEvent(s.b, s.event, 0);
         cudaEventRecord(s.event, s.a);
         axpy(s.y.data(), s.x.data(), 2.0f, n, s.b);
       },
       true},
      {"a copy overwrites what another stream's kernel reads", P::stream_race, "copy to the device",
       [](Setting& s) {
         axpy(s.y.data(), s.x.data(), 2.0f, n, s.a);
         cudaMemcpyAsync(s.x.data(), s.pinned, bytes, cudaMemcpyHostToDevice, s.b);
       },
       true},
      {"a kernel reads what another stream's copy writes", P::stream_race,
       "a copy, memset or library",
       [](Setting& s) {
         cudaMemcpyAsync(s.x.data(), s.pinned, bytes, cudaMemcpyHostToDevice, s.b);
         axpy(s.y.data(), s.x.data(), 2.0f, n, s.a);
       },
       true},
      {"the legacy stream does not wait for a non-blocking one", P::stream_race, "copy to the host",
       [](Setting& s) {
         axpy(s.y.data(), s.x.data(), 2.0f, n, s.a);
         std::vector<float> host(n);
         cudaMemcpy(host.data(), s.y.data(), bytes, cudaMemcpyDeviceToHost);
       },
       true},
      {"memory is freed while another stream may use it", P::stream_race, "is freed on a stream",
       [](Setting& s) {
         float* p = nullptr;
         cudaMallocAsync(&p, bytes, s.a);
         cudaMemsetAsync(p, 0, bytes, s.a);
         cudaEventRecord(s.event, s.a);
         cudaStreamWaitEvent(s.b, s.event, 0);
         axpy(p, s.x.data(), 2.0f, n, s.b);
         cudaFreeAsync(p, s.a);
         cudaDeviceSynchronize();
       }},
      {"memory is used on a stream that does not wait for its allocation", P::stream_race,
       "does not wait for the one it was allocated on",
       [](Setting& s) {
         float* p = nullptr;
         cudaMallocAsync(&p, bytes, s.a);
         cudaMemsetAsync(p, 0, bytes, s.b);
         cudaDeviceSynchronize();
       }},
      {"the host reads a pinned buffer too early", P::pinned_in_use, "a copy on a stream writes",
       [](Setting& s) {
         cudaMemcpyAsync(s.pinned, s.x.data(), bytes, cudaMemcpyDeviceToHost, s.a);
         static_cast<void>(*static_cast<volatile float*>(s.pinned + 5));
       }},
      {"the host fills a pinned buffer too early", P::pinned_in_use, "a copy on a stream reads",
       [](Setting& s) {
         cudaMemcpyAsync(s.x.data(), s.pinned, bytes, cudaMemcpyHostToDevice, s.a);
         CHECK(s.pinned[0] == 0);  // reading it is fine
         *static_cast<volatile float*>(s.pinned) = 1;
       }},
      {"a pinned buffer is freed too early", P::pinned_in_use, "cudaFreeHost",
       [](Setting& s) {
         cudaMemcpyAsync(s.pinned, s.x.data(), bytes, cudaMemcpyDeviceToHost, s.a);
         cudaFreeHost(s.pinned);
       }},
      {"a graph outlives the memory it uses", P::use_after_free, "argument 0 of",
       [](Setting& s) {
         float* p = nullptr;
         cudaMalloc(&p, bytes);
         cudaMemsetAsync(p, 0, bytes, s.a);
         cudaGraph_t graph = nullptr;
         cudaGraphExec_t executable = nullptr;
         cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal);
         axpy(p, s.x.data(), 2.0f, n, s.a);
         cudaStreamEndCapture(s.a, &graph);
         CHECK(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
         CHECK(cudaGraphLaunch(executable, s.a) == cudaSuccess);
         cudaFree(p);
         cudaGraphLaunch(executable, s.a);
         cudaStreamSynchronize(s.a);
       }},
      {"branches of a graph use the same memory", P::stream_race, "its stream does not wait",
       [](Setting& s) {
         cudaGraph_t graph = nullptr;
         cudaGraphExec_t executable = nullptr;
         cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal);
         cudaEventRecord(s.event, s.a);
         cudaStreamWaitEvent(s.b, s.event, 0);
         axpy(s.y.data(), s.x.data(), 2.0f, n, s.a);
         axpy(s.y.data(), s.x.data(), 2.0f, n, s.b);
         cudaEventRecord(s.event, s.b);
         cudaStreamWaitEvent(s.a, s.event, 0);
         CHECK(cudaStreamEndCapture(s.a, &graph) == cudaSuccess);
         cudaGraphInstantiate(&executable, graph, 0);
         cudaGraphLaunch(executable, s.a);
       },
       true},
      {"a kernel writes behind an array", P::overrun, "4 bytes behind allocation 3 of 1024 bytes",
       [](Setting&) {
         const DeviceArray<float> z(n);
         plain_kernels().write_behind(z.data(), n);
       },
       true},  // AddressSanitizer ends the program
  };
}

TEST_CASE("Every mistake of host code is found, and named for what it is") {
  for (const bool deferred : {false, true})
    for (const Case& c : host_cases()) {
      if (c.needs_checks && !kernels_are_instrumented()) continue;
      if (c.problem == Problem::uninitialised_read && !kernels_are_instrumented()) continue;
      CAPTURE(std::string(c.bug));
      CAPTURE(deferred);
      const Emulation emulation(Order::forward, deferred);
      Setting setting;
      const Collect collect;
      try {
        c.run(setting);
        cudaDeviceSynchronize();
      } catch (const Error&) {  // after a fault every call fails
      }
      REQUIRE(!collect.findings.empty());
      const Finding& found = collect.findings[0];
      CAPTURE(found.text);
      if (deferred) continue;  // other work may come first, and show the mistake in another way
      CHECK(name_of(found.problem) == name_of(c.problem));
      CHECK(found.text.find(c.words) != found.text.npos);
    }
}

TEST_CASE("With an event between them two streams share memory") {
  for (const bool deferred : {false, true}) {
    const Emulation emulation(Order::forward, deferred);
    Setting s;
    const Collect collect;
    cudaMemcpyAsync(s.y.data(), s.pinned, bytes, cudaMemcpyHostToDevice, s.a);
    axpy(s.y.data(), s.x.data(), 2.0f, n, s.a);
    cudaEventRecord(s.event, s.a);
    cudaStreamWaitEvent(s.b, s.event, 0);
    axpy(s.y.data(), s.x.data(), 2.0f, n, s.b);
    cudaMemcpyAsync(s.pinned, s.y.data(), bytes, cudaMemcpyDeviceToHost, s.b);
    cudaStreamSynchronize(s.b);
    CHECK(s.pinned[3] == 4 * some_numbers(n)[3]);
    for (const Finding& f : collect.findings)
      FAIL_CHECK(f.text);
  }
}

TEST_CASE("Two streams may read the same memory, and the host's waiting orders them") {
  const Emulation emulation;
  Setting s;
  const DeviceArray<float> z(some_numbers(n));
  const Collect collect;
  axpy(s.y.data(), s.x.data(), 2.0f, n, s.a);
  axpy(z.data(), s.x.data(), 2.0f, n, s.b);
  cudaStreamSynchronize(s.a);
  axpy(s.y.data(), s.x.data(), 2.0f, n, s.b);
  for (const Finding& f : collect.findings)
    FAIL_CHECK(f.text);
}

TEST_CASE("What nobody freed is listed") {
  const Emulation emulation;
  CHECK(leaks().empty());
  {
    const DeviceArray<float> freed(10);
    void *p = nullptr, *q = nullptr;
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr;
    cudaMalloc(&p, 100);
    cudaMallocHost(&q, 50);
    cudaStreamCreate(&stream);
    cudaEventCreate(&event);
  }
  CHECK(leaks() == std::vector<std::string>{"allocation 2 of 100 bytes",
                                            "pinned buffer of 50 bytes", "stream", "event"});
}

}  // namespace

}  // namespace minim::emulator
