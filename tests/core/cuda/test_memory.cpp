#include <cmath>
#include <cstdint>

#include <doctest/doctest.h>

#include "core/memory.h"
#include "core/tensor.h"
#include "tests/core/cuda/needs_device.h"

namespace minim {
namespace {

using memory::Category;
const Device device = Device::cuda();

TEST_CASE("each device has books of its own" * needs_device) {
  const int64_t before = memory::current(Category::weights, device);
  const int64_t total = memory::current(device), host = memory::current();
  {
    const memory::Scope scope(Category::weights);
    const Tensor x = Tensor::empty({3, 5}, DType::f64, device);
    CHECK(memory::current(Category::weights, device) == before + 120);
    CHECK(memory::current(device) == total + 120);
    CHECK(memory::current() == host);
    x.count_as(Category::optimizer_state);
    CHECK(memory::current(Category::weights, device) == before);
    CHECK(memory::current(device) == total + 120);
  }
  CHECK(memory::current(device) == total);
  CHECK(memory::peak(device) >= total + 120);
  memory::reset_peak();
  CHECK(memory::peak(device) == total);
}

TEST_CASE("a steady step asks nothing of the device" * needs_device) {
  const auto step = [] {
    Tensors alive;
    for (int64_t i = 1; i < 20; ++i) {
      alive.push_back(Tensor::full({3, i * 7}, 1, DType::f32, device));
      if (i % 3 == 0) alive.erase(alive.begin() + i / 3);
    }
  };
  step();
  const int64_t before = memory::system_allocations(device);
  step();
  CHECK(memory::system_allocations(device) == before);
  memory::release_pool();
  step();
  CHECK(memory::system_allocations(device) > before);
}

TEST_CASE("pooled memory of a device can be poisoned" * needs_device) {
  Tensor::zeros({77}, DType::f32, device);
  memory::poison_pool(0xff);
  for (const float v : Tensor::empty({77}, DType::f32, device).to_vector<float>())
    CHECK(std::isnan(v));
}

TEST_CASE("memory is aligned to 256 bytes on a device" * needs_device) {
  for (int64_t n : {0, 1, 16, 17, 1000, 4097})
    CHECK(reinterpret_cast<uintptr_t>(Tensor::empty({n}, DType::f32, device).raw()) % 256 == 0);
}

TEST_CASE("memory that a device has not is an error that lists what is free and in use" *
          needs_device) {
  const memory::Scope scope(Category::data);
  const Tensor held = Tensor::empty({int64_t(3) << 20}, DType::u8, device);
  const int64_t before = memory::current(device);
  std::string text;
  try {
    Tensor::empty({int64_t(1) << 50}, DType::u8, device);
  } catch (const Error& error) {
    text = error.what();
  }
  CHECK(text.starts_with("memory: cuda:0 has no 1125899906842624 bytes left, "));
  CHECK(text.find(" MiB are free; in use: ") != std::string::npos);
  CHECK(text.ends_with("data 3.0 MiB; a smaller batch or shorter sequences need less"));
  CHECK(memory::current(device) == before);
  CHECK(Tensor::full({4}, 2, DType::f32, device).to_vector<float>() ==
        std::vector<float>(4, 2));  // the device can still be used
}

}  // namespace
}  // namespace minim
