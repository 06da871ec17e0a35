#include "core/device.h"

#include <charconv>

#include "core/error.h"

namespace minim {

Device Device::cuda(int index) {
  check(index >= 0 && index < most_cuda, "device: cuda:{} must have a number from 0 to {}", index,
        most_cuda - 1);
  return Device(index);
}

Device Device::parse(std::string_view text) {
  if (text == "cpu") return cpu();
  if (text == "cuda") return cuda();
  constexpr std::string_view prefix = "cuda:";
  int index = 0;
  if (text.starts_with(prefix)) {
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + prefix.size(), end, index);
    if (error == std::errc() && rest == end) return cuda(index);
  }
  fail("device: \"{}\" is none of cpu, cuda, cuda:0, cuda:1 ..", text);
}

std::string Device::to_string() const {
  return is_cpu() ? "cpu" : fmt::format("cuda:{}", cuda_index_);
}

UsableDevice usable_device(std::string_view text) {
  const bool automatic = text == "auto";
  const Device wanted = automatic ? Device::cuda() : Device::parse(text);
  if (wanted.is_cpu()) return {wanted, ""};
  const int count = cuda::device_count();
  if (wanted.index() < count) return {wanted, ""};
  const std::string why =
      count == 0 ? cuda::why_unavailable()
                 : fmt::format("there {} {} CUDA device{}, counted from 0",
                               count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
  return {Device::cpu(),
          automatic ? fmt::format("device: the cpu is used, since {}", why)
                    : fmt::format("device: the cpu is used instead of {}, since {}", wanted, why)};
}

}  // namespace minim
