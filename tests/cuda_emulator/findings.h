#pragma once

#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "tests/cuda_emulator/emulator.h"

// How the parts of the emulator say what they found, and the error codes that programs see.
namespace minim::emulator {

// A place in the program that a finding names: "read by" and the address of its code.
struct Place {
  std::string role;
  const void* code = nullptr;
};

// Reports from host code; returns only where findings are collected.
void report(Problem problem, const std::string& text, const std::vector<Place>& places = {});

// The code that a device would report for a problem; cudaSuccess where it would not notice.
cudaError_t device_error(Problem problem);

// Remembers the error for cudaGetLastError, and its explanation; returns it.
cudaError_t fail_with(cudaError_t error, std::string explanation);
// From here on every call fails with this error, as after a fault of a kernel on a device.
void corrupt_context(cudaError_t error);
// The error that all calls give since a fault, or for want of a device; cudaSuccess normally.
cudaError_t context_error();
void reset_errors();

// "file.cpp:12", or the function, or the address, whichever can be found.
std::string source_of(const void* code);
// Readable name of the function at an address.
std::string function_name(const void* code);

}  // namespace minim::emulator
