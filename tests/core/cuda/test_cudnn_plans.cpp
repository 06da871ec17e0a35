#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <string>

#include <doctest/doctest.h>

#include "core/cuda/cudnn_attention_plan.h"
#include "core/error.h"

// cuDNN itself, where it is installed, judges the graphs of attention for devices that need not be
// there. It loads a part that wants libcuda.so.1: where there is no driver, the toolkit's stub
// does.
namespace minim::cuda {
namespace {

// A device as cuDNN describes one in JSON; figures from the vendor's data sheets.
std::string device_text(int version, const std::string& name, int multiprocessors, int shared) {
  return R"({"deviceVer":)" + std::to_string(version) + R"(,"driverVer":13000,)" +
         R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)" +
         R"("regsPerBlock":65536,"multiProcessorCount":)" + std::to_string(multiprocessors) +
         R"(,"smCountOrigin":0,"warpSize":32,"maxSharedMemoryPerBlock":49152,)" +
         R"("maxSharedMemoryPerBlockOptin":)" + std::to_string(shared) +
         R"(,"oversizedSharedMemoryPerBlock":)" + std::to_string(shared) +
         R"(,"reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"maxCtasPerSM":32,)" +
         R"("maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,)" +
         R"("supportCoopLaunch":1,"smClockRateKHz":1410000,"memClockRateKHz":1593000,)" +
         R"("memoryBusWidth":5120,"l2CacheSize":41943040,"totalGlobalMem":85000000000,)" +
         R"("cudaDeviceId":0,"deviceName":")" + name + R"("})";
}

// Makes libcuda.so.1 known by its name, as a driver would.
void load_stub_of_driver() {
  if (dlopen("libcuda.so.1", RTLD_LAZY) != nullptr) return;
#if defined(MINIM_TOOLKIT)
  for (const char* folder : {"lib64/stubs", "lib/stubs"})
    dlopen((std::filesystem::path(MINIM_TOOLKIT) / folder / "libcuda.so").c_str(), RTLD_LAZY);
#endif
}

TEST_CASE("cudnn: it has engines for our graphs of attention on GPUs of 8.0 and 9.0") {
  load_stub_of_driver();
  CudnnLibrary library;
  try {
    library = load_cudnn();
  } catch (const Error& error) {
    MESSAGE("skipped: " << error.what());
    return;
  }
  if (library.version() < 92800) {
    MESSAGE("skipped: cuDNN " << library.version() << " has no backward of packed attention");
    return;
  }
  for (const auto& device :
       {device_text(800, "A100", 108, 166912), device_text(900, "H200", 132, 232448)})
    for (const DType dtype : {DType::f16, DType::bf16})
      for (const bool backward : {false, true})
        for (const int64_t head_dim : {8, 64, 128})
          for (const int64_t length : {16, 512}) {
            const CudnnAttentionShape shape{dtype, backward, 4, 12, head_dim, length, length};
            CAPTURE(shape.describe());
            try {
              const int64_t engines = CudnnAttentionPlan::engines_for(library, device, shape);
              CHECK(engines > 0);
            } catch (const Error& error) {
              const std::string text = error.what();
              if (text.find("SUBLIBRARY") == std::string::npos) throw;
              MESSAGE("skipped, there is no libcuda.so.1: " << text);
              return;
            }
          }
}

TEST_CASE("cudnn: a library that is not there is an error that says where it was looked for") {
  setenv("MINIM_CUDNN", "/nowhere/libcudnn.so.9", 1);
  try {
    load_cudnn();
    FAIL("loaded");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "cudnn: /nowhere/libcudnn.so.9: cannot open shared object file: No such file or "
          "directory; set MINIM_CUDNN to the folder that has it");
  }
  unsetenv("MINIM_CUDNN");
}

}  // namespace
}  // namespace minim::cuda
