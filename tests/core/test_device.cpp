#include <doctest/doctest.h>

#include "core/tensor.h"

namespace minim {
namespace {

TEST_CASE("devices are read, printed and compared") {
  CHECK(Device() == Device::cpu());
  CHECK(Device::parse("cpu") == Device::cpu());
  CHECK(Device::parse("cuda") == Device::cuda(0));
  CHECK(Device::parse("cuda:1") == Device::cuda(1));
  CHECK(Device::cuda(1) != Device::cuda(2));
  CHECK(Device::cuda() != Device::cpu());
  CHECK(Device::cpu().to_string() == "cpu");
  CHECK(Device::cuda().to_string() == "cuda:0");
  CHECK(fmt::format("{}", Device::cuda(3)) == "cuda:3");
  CHECK(Device::cuda(3).index() == 3);
  CHECK(Device::cuda(3).is_cuda());
  CHECK_FALSE(Device::cuda(3).is_cpu());
}

TEST_CASE("names of devices that are none are refused") {
  for (const char* text : {"", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:1x", "cuda: 1", "cpu:0",
                           "cuda:99999999999999999999"}) {
    const std::string message =
        fmt::format("device: \"{}\" is none of cpu, cuda, cuda:0, cuda:1 ..", text);
    CHECK_THROWS_WITH_AS(Device::parse(text), message.c_str(), Error);
  }
  CHECK_THROWS_WITH_AS(Device::parse("cuda:16"), "device: cuda:16 must have a number from 0 to 15",
                       Error);
  CHECK_THROWS_WITH_AS(Device::cuda(-1), "device: cuda:-1 must have a number from 0 to 15", Error);
}

TEST_CASE("tensors are on the CPU unless they are put elsewhere") {
  CHECK(Tensor::zeros({2}).device() == Device::cpu());
  const Tensor x = Tensor::from({1.0f, 2.0f}, {2});
  CHECK(x.to(Device::cpu()).is_same(x));
  CHECK_THROWS_WITH_AS(Tensor().device(), "device: the tensor is undefined", Error);
}

TEST_CASE("new tensors take dtype and device from the one that makes them") {
  const Tensor x = Tensor::full({2, 3}, 1, DType::bf16);
  CHECK(Tensor::empty_like(x).shape() == x.shape());
  CHECK(Tensor::empty_like(x).dtype() == DType::bf16);
  CHECK(x.new_empty({4}).dtype() == DType::bf16);
  CHECK(x.new_empty({4}, DType::i64).dtype() == DType::i64);
  CHECK(x.new_zeros({2}, DType::f32).to_vector<float>() == std::vector<float>{0, 0});
  CHECK(x.new_full({2}, 3, DType::f32).to_vector<float>() == std::vector<float>{3, 3});
}

TEST_CASE("where there is no CUDA device the CPU is used, and a sentence says why") {
  CHECK(usable_device("cpu").device == Device::cpu());
  CHECK(usable_device("cpu").why_not.empty());
  CHECK_THROWS_AS(usable_device("gpu"), Error);
  if (cuda::device_count() > 0) {
    CHECK(cuda::why_unavailable().empty());
    CHECK(usable_device("auto").device == Device::cuda());
    CHECK(usable_device("cuda").device == Device::cuda());
    return;
  }
  const std::string why = cuda::why_unavailable();
  CHECK_FALSE(why.empty());
  const UsableDevice wanted = usable_device("cuda:1"), automatic = usable_device("auto");
  CHECK(wanted.device == Device::cpu());
  CHECK(wanted.why_not == "device: the cpu is used instead of cuda:1, since " + why);
  CHECK(automatic.device == Device::cpu());
  CHECK(automatic.why_not == "device: the cpu is used, since " + why);
  // Whoever insists gets the same reason.
  try {
    Tensor::zeros({2}, DType::f32, Device::cuda());
    FAIL("there is no device");
  } catch (const Error& error) {
    CHECK(std::string(error.what()).find(why) != std::string::npos);
  }
}

}  // namespace
}  // namespace minim
