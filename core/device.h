#pragma once

#include <string>
#include <string_view>

#include <fmt/core.h>

namespace minim {

// Where a tensor's memory lies and its operations run: the CPU, or a CUDA device by its number.
class Device {
 public:
  // CUDA devices have numbers below this.
  static constexpr int most_cuda = 16;

  // The CPU.
  constexpr Device() = default;
  static constexpr Device cpu() { return Device(); }
  // Whether there is such a device is found out when something is to be put there.
  static Device cuda(int index = 0);
  // Reads "cpu", "cuda" (the first) or "cuda:1".
  static Device parse(std::string_view text);

  constexpr bool is_cpu() const { return cuda_index_ < 0; }
  constexpr bool is_cuda() const { return cuda_index_ >= 0; }
  // Number of a CUDA device; 0 for the CPU.
  constexpr int index() const { return is_cuda() ? cuda_index_ : 0; }
  // "cpu" or "cuda:0".
  std::string to_string() const;
  constexpr bool operator==(const Device&) const = default;

 private:
  constexpr explicit Device(int cuda_index) : cuda_index_(cuda_index) {}

  int cuda_index_ = -1;
};

// A device that can be used.
struct UsableDevice {
  Device device;
  std::string why_not;  // a sentence where the CPU is used instead of what was asked for
};
// The device that a text names ("auto": CUDA where there is one), or the CPU and why.
UsableDevice usable_device(std::string_view text);

namespace cuda {

// Whether this build has the CUDA backend.
bool is_built();
// CUDA devices that can be used; 0 where there is none.
int device_count();
// Why there is none: "this build has no CUDA; ..", "no CUDA driver is found", ..; else empty.
std::string why_unavailable();

}  // namespace cuda

}  // namespace minim

template <>
struct fmt::formatter<minim::Device> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(const minim::Device& device, Context& context) const {
    const std::string text = device.to_string();
    return std::copy(text.begin(), text.end(), context.out());
  }
};
