#include "tests/cuda_emulator/findings.h"

#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <dlfcn.h>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace minim::emulator {

namespace {

Collect* collecting = nullptr;
cudaError_t sticky = cudaSuccess;
thread_local cudaError_t last_error = cudaSuccess;
thread_local std::string last_explanation;

// What addr2line says of an address: the function and the source line; where the code was inlined
// from the emulator's own headers, those that called it.
std::pair<std::string, std::string> symbolise(const void* code, bool return_address) {
  Dl_info info;
  if (dladdr(code, &info) == 0 || info.dli_fname == nullptr) return {};
  const auto offset = uintptr_t(code) - uintptr_t(info.dli_fbase) - (return_address ? 1 : 0);
  const std::string command =
      fmt::format("addr2line -Cfie '{}' {:#x} 2>/dev/null", info.dli_fname, offset);
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (!pipe) return {};
  std::string function, source;
  do {
    for (std::string* line : {&function, &source}) {
      line->clear();
      for (int c; (c = fgetc(pipe.get())) != EOF && c != '\n';)
        *line += char(c);
    }
  } while (source.find("tests/cuda_emulator/device.h") != source.npos ||
           source.find("tests/cuda_emulator/intrinsics.h") != source.npos);
  return {function, source.substr(0, source.find(" (discriminator"))};
}

bool known(const std::string& text) {
  return !text.empty() && text[0] != '?';
}

}  // namespace

std::string_view name_of(Problem problem) {
  constexpr std::string_view names[] = {"uninitialised read",
                                        "race",
                                        "race between blocks",
                                        "race between streams",
                                        "divergent barrier",
                                        "warp mask",
                                        "inactive lane",
                                        "host access",
                                        "pinned in use",
                                        "overrun",
                                        "invalid free",
                                        "invalid copy",
                                        "arithmetic",

                                        "out of bounds",
                                        "use after free",
                                        "host pointer",
                                        "misaligned",
                                        "trap",
                                        "stack overflow"};
  static_assert(std::size(names) == size_t(Problem::stack_overflow) + 1);
  return names[size_t(problem)];
}

void report(Problem problem, const std::string& text, const std::vector<Place>& places) {
  std::string all = fmt::format("{}: {}", name_of(problem), text);
  for (const Place& place : places)
    all += fmt::format("\n  {} {}", place.role, source_of(place.code));
  if (collecting != nullptr) {
    collecting->findings.push_back({problem, std::move(all)});
    return;
  }
  std::fflush(stdout);
  fmt::print(stderr, "cuda emulator: {}\n", all);
  std::abort();
}

cudaError_t device_error(Problem problem) {
  switch (problem) {
    case Problem::out_of_bounds:
    case Problem::use_after_free:
    case Problem::host_pointer:
    case Problem::stack_overflow:
      return cudaErrorIllegalAddress;
    case Problem::misaligned:
      return cudaErrorMisalignedAddress;
    case Problem::trap:
      return cudaErrorLaunchFailure;
    default:
      return cudaSuccess;
  }
}

cudaError_t fail_with(cudaError_t error, std::string explanation) {
  last_error = error;
  last_explanation = std::move(explanation);
  return error;
}

void corrupt_context(cudaError_t error) {
  if (sticky == cudaSuccess) sticky = error;
}

cudaError_t context_error() {
  if (options().devices < 1) return cudaErrorNoDevice;
  if (options().driver_version < CUDART_VERSION / 1000 * 1000) return cudaErrorInsufficientDriver;
  return sticky;
}

void reset_errors() {
  sticky = last_error = cudaSuccess;
  last_explanation.clear();
}

Collect::Collect() : outer_(std::exchange(collecting, this)) {}

Collect::~Collect() {
  collecting = outer_;
}

std::string explanation() {
  return last_explanation;
}

std::string source_of(const void* code) {
  const auto [function, source] = symbolise(code, true);
  if (known(source)) return source.substr(source.rfind('/') + 1);
  return known(function) ? function : fmt::format("{}", code);
}

std::string function_name(const void* code) {
  Dl_info info;
  if (dladdr(code, &info) != 0 && info.dli_sname != nullptr && info.dli_saddr == code) {
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> name(
        abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status), std::free);
    return name ? name.get() : info.dli_sname;
  }
  const std::string function = symbolise(code, false).first;
  return known(function) ? function : fmt::format("kernel at {}", code);
}

}  // namespace minim::emulator

extern "C" {

cudaError_t cudaGetLastError() {
  using namespace minim::emulator;
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaPeekAtLastError() {
  using namespace minim::emulator;
  return context_error() != cudaSuccess ? context_error() : last_error;
}
}
