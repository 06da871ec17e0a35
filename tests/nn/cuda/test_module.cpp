#include <doctest/doctest.h>

#include "autograd/ops.h"
#include "autograd/set_data.h"
#include "nn/linear.h"
#include "nn/sequential.h"
#include "optim/sgd.h"
#include "tests/core/cuda/needs_device.h"

namespace minim {
namespace {

const Device device = Device::cuda();

TEST_CASE("a module moves to a device and back with its values" * needs_device) {
  const nn::Linear layer(3, 2);
  const Tensor x = Tensor::from({1.0f, -2.0f, 0.5f}, {1, 3});
  const std::vector<float> before = layer.forward(x).to_vector<float>();
  const Tensor held = layer.weight;  // as an optimizer holds it
  layer.to(device);
  CHECK(layer.device() == device);
  CHECK(held.device() == device);
  CHECK(held.requires_grad());
  const std::vector<float> there = layer.forward(x.to(device)).to_vector<float>();
  for (size_t i = 0; i < before.size(); ++i)
    CHECK(there[i] == doctest::Approx(before[i]).epsilon(1e-6));
  layer.to(Device::cpu());
  CHECK(layer.forward(x).to_vector<float>() == before);
}

TEST_CASE("moving a module drops gradients and counts its weights on the device" * needs_device) {
  const nn::Linear layer(8, 4);
  const int64_t before = memory::current(memory::Category::weights, device);
  sum(layer.forward(Tensor::zeros({1, 8}))).backward();
  REQUIRE(layer.weight.grad().defined());
  layer.to(device);
  CHECK_FALSE(layer.weight.grad().defined());
  CHECK(memory::current(memory::Category::weights, device) - before == 4 * (8 * 4 + 4));
}

TEST_CASE("an optimizer made before a move goes on with the moved parameters" * needs_device) {
  const nn::Linear layer(2, 1);
  fill(layer.weight, 1);
  optim::Sgd optimizer(layer.parameters(), {.lr = 0.5});
  layer.to(device);
  sum(layer.forward(Tensor::full({1, 2}, 1, DType::f32, device))).backward();
  optimizer.step();
  // d sum / d w = x = 1; 1 - 0.5 * 1
  CHECK(layer.weight.to_vector<float>() == std::vector<float>{0.5f, 0.5f});
}

TEST_CASE("a backward from before a move leaves the moved weights alone" * needs_device) {
  const nn::Linear layer(2, 2);
  const Tensor y = sum(layer.forward(Tensor::zeros({1, 2})));
  layer.to(device);
  y.backward();
  CHECK_FALSE(layer.weight.grad().defined());
  CHECK(layer.weight.requires_grad());
}

TEST_CASE("a part of a model moves alone, and the parts then do not fit" * needs_device) {
  const nn::Scope at;
  const nn::Linear first(2, 2, at / "first"), second(2, 2, at / "second");
  second.to(device);
  CHECK(first.device() == Device::cpu());
  CHECK(second.device() == device);
  CHECK_THROWS_AS(second.forward(first.forward(Tensor::zeros({1, 2}))), Error);
}

}  // namespace
}  // namespace minim
