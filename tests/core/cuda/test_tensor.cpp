#include <cmath>
#include <numeric>

#include <doctest/doctest.h>

#include "core/random.h"
#include "core/tensor.h"
#include "tests/core/cuda/needs_device.h"

namespace minim {
namespace {

const Device device = Device::cuda();

TEST_CASE("tensors live on the device and come back" * needs_device) {
  const Tensor x = Tensor::from({1.0f, -2.0f, 3.5f}, {3}, device);
  CHECK(x.device() == device);
  CHECK(x.to_vector<double>() == std::vector<double>{1, -2, 3.5});
  CHECK(Tensor::zeros({2, 2}, DType::i64, device).to_vector<int>() == std::vector<int>(4, 0));
  CHECK(Tensor::full({3}, 2.5, DType::bf16, device).to_vector<float>() ==
        std::vector<float>(3, 2.5f));
  CHECK(Tensor::full({}, -7, DType::f64, device).item() == -7);
  CHECK(x.view({1}, {1}, 2).item() == 3.5);
  CHECK(x.new_empty({5}).device() == device);
  CHECK(Tensor::empty_like(x).device() == device);
  CHECK(x.clone().device() == device);
  CHECK(x.view({2}, {1}).device() == device);
  CHECK(x.to(device).is_same(x));
}

TEST_CASE("every dtype is copied and converted on the device as on the CPU" * needs_device) {
  const DType all[] = {DType::f32, DType::f64, DType::f16, DType::bf16,
                       DType::i32, DType::i64, DType::u8,  DType::boolean};
  for (const DType from : all)
    for (const DType to : all) {
      CAPTURE(name_of(from));
      CAPTURE(name_of(to));
      const Tensor x = convert(Tensor::from({0.0, 1.0, 2.0, 77.0, 3.25}, {5}), from);
      const Tensor there = x.to(device);
      CHECK(there.dtype() == from);
      CHECK(convert(there, to).to_vector<double>() == convert(x, to).to_vector<double>());
    }
}

TEST_CASE("strided tensors are copied between devices element by element" * needs_device) {
  const Tensor x = randn({5, 7});
  const Tensor transposed = x.view({7, 5}, {1, 7});
  CHECK(transposed.to(device).to_vector<float>() == transposed.to_vector<float>());
  const Tensor there = x.to(device).view({7, 5}, {1, 7});
  CHECK(there.to_vector<float>() == transposed.to_vector<float>());
  CHECK(there.to(Device::cpu()).to_vector<float>() == transposed.to_vector<float>());

  const Tensor wide = Tensor::zeros({7, 10}, DType::f64, device);
  copy(wide.view({7, 5}, {10, 2}), transposed);  // converts, and leaves every second column
  CHECK(wide.view({7, 5}, {10, 2}).to_vector<float>() == transposed.to_vector<float>());
  CHECK(wide.view({7, 5}, {10, 2}, 1).to_vector<float>() == std::vector<float>(35, 0));
}

TEST_CASE("large copies go through pinned memory in parts" * needs_device) {
  // More than the four buffers of 1 MiB that are taken in turn.
  std::vector<int32_t> numbers(size_t(5) << 18 | 77);
  std::iota(numbers.begin(), numbers.end(), -1000);
  const Shape shape = {int64_t(numbers.size())};
  const Tensor x = Tensor::from(numbers, shape);
  const Tensor there = x.to(device);
  fill(x, 3);  // the copy has read the memory when it returns
  CHECK(there.to_vector<int32_t>() == numbers);
}

TEST_CASE("tensors without elements are copied too" * needs_device) {
  const Tensor x = Tensor::empty({3, 0}, DType::f32, device);
  CHECK(x.to_vector<float>().empty());
  CHECK(x.to(Device::cpu()).shape() == Shape{3, 0});
  fill(x, 1);
  CHECK(Tensor::empty({0}).to(device).device() == device);
}

TEST_CASE("writing in place counts versions across devices" * needs_device) {
  const Tensor x = Tensor::zeros({3}, DType::f32, device);
  const int64_t before = x.version();
  copy(x, Tensor::from({1.0f, 2.0f, 3.0f}, {3}));
  CHECK(x.version() > before);
  CHECK(x.to_vector<float>() == std::vector<float>{1, 2, 3});
}

TEST_CASE("indices that came from the host are known there until they are written" * needs_device) {
  const Tensor ids = Tensor::from({5, 6, 7, 8}, {4});
  const Tensor there = ids.to(device);
  fill(ids, 0);  // the copy is a copy
  CHECK(there.to_vector<int32_t>() == std::vector<int32_t>{5, 6, 7, 8});
  CHECK(there.view({2}, {1}, 1).to_vector<int32_t>() == std::vector<int32_t>{6, 7});
  CHECK(there.view({2}, {2}).to(Device::cpu()).to_vector<int32_t>() == std::vector<int32_t>{5, 7});
  fill(there.view({2}, {1}, 2), 9);
  CHECK(there.to_vector<int32_t>() == std::vector<int32_t>{5, 6, 9, 9});
  copy(there, Tensor::from({1, 2, 3, 4}, {4}));
  CHECK(there.view({1}, {1}, 3).item() == 4);
}

TEST_CASE("the host gets no elements of a tensor on the device" * needs_device) {
  CHECK_THROWS_WITH_AS(Tensor::zeros({2}, DType::f32, device).values<float>(),
                       "values: the tensor is on cuda:0; copy it with to(Device::cpu())", Error);
}

TEST_CASE("a device that is not there is named" * needs_device) {
  const int count = cuda::device_count();
  const std::string message =
      fmt::format("device: there is no cuda:{}; the last one is cuda:{}", count, count - 1);
  CHECK_THROWS_WITH_AS(Tensor::zeros({2}, DType::f32, Device::cuda(count)), message.c_str(), Error);
  const UsableDevice usable = usable_device(fmt::format("cuda:{}", count));
  CHECK(usable.device == Device::cpu());
  CHECK(usable.why_not.starts_with(
      fmt::format("device: the cpu is used instead of cuda:{}, since there ", count)));
}

TEST_CASE("draws are the same on the device" * needs_device) {
  const Tensor here = Tensor::empty({1000}), there = Tensor::empty({1000}, DType::f32, device);
  for (const Tensor& x : {here, there})
    fill_uniform(x, -1, 2, 7, "name");
  // A device may fuse the product and the sum in f64, which moves few last bits of f32.
  const std::vector<float> a = here.to_vector<float>(), b = there.to_vector<float>();
  for (size_t i = 0; i < a.size(); ++i)
    CHECK(std::abs(a[i] - b[i]) <= 1.2e-7f * std::abs(a[i]));
  for (const Tensor& x : {here, there})
    fill_normal(x, 0, 1, 7, "name");
  const std::vector<float> c = here.to_vector<float>(), d = there.to_vector<float>();
  // Logarithm, root and cosine of the two are within a few units in the last place.
  for (size_t i = 0; i < c.size(); ++i)
    CHECK(std::abs(c[i] - d[i]) <= 2e-6f);
}

}  // namespace
}  // namespace minim
