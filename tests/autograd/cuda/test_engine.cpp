#include <doctest/doctest.h>

#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "tests/core/cuda/needs_device.h"

namespace minim {
namespace {

const Device device = Device::cuda();

Tensor here(const Shape& shape, DType dtype = DType::f32) {
  return Tensor::zeros(shape, dtype);
}
Tensor there(const Shape& shape, DType dtype = DType::f32) {
  return Tensor::zeros(shape, dtype, device);
}

TEST_CASE("an operation on two devices names both" * needs_device) {
  const auto refused = [](std::string_view op, const std::function<Tensor()>& call,
                          std::string_view devices = "cpu and cuda:0") {
    const std::string message =
        fmt::format("{}: devices {} differ; copy one with to()", op, devices);
    CAPTURE(op);
    CHECK_THROWS_WITH_AS(call(), message.c_str(), Error);
  };
  constexpr std::string_view other_way = "cuda:0 and cpu";
  refused("add", [] { return here({2}) + there({2}); });
  refused(
      "mul", [] { return there({2}) * here({2}); }, other_way);
  refused("where", [] { return where(here({2}, DType::boolean), there({2}), there({2})); });
  refused(
      "where", [] { return where(there({2}, DType::boolean), there({2}), here({2})); }, other_way);
  refused("masked_fill", [] { return masked_fill(here({2}), there({2}, DType::boolean), 1); });
  refused("concat", [] { return concat({here({2}), there({2})}); });
  refused("gather", [] { return gather(here({2}), 0, there({2}, DType::i64)); });
  refused("index_select", [] { return index_select(here({2}), 0, there({2}, DType::i64)); });
  refused(
      "embedding",
      [] {
        return embedding(there({2, 3}), here({2}, DType::i64));
      },
      other_way);
  refused("matmul", [] { return matmul(here({2, 2}), there({2, 2})); });
  refused("linear", [] { return linear(here({2, 2}), there({2, 2})); });
  refused("linear", [] { return linear(here({2, 2}), here({2, 2}), there({2})); });
  refused("layer_norm", [] { return layer_norm(here({2, 2}), there({2}), there({2}), 1); });
  refused("cross_entropy", [] { return cross_entropy(here({2, 2}), there({2}, DType::i64)); });
  refused("mse_loss", [] { return mse_loss(here({2}), there({2})); });
  refused("scaled_dot_product_attention", [] {
    return scaled_dot_product_attention(here({2, 2}), there({2, 2}), there({2, 2}));
  });
  refused("add_into", [] {
    add_into(here({2}), there({2}));
    return Tensor();
  });
}

TEST_CASE("bad indices on a device are named" * needs_device) {
  const Tensor ids = Tensor::from({0, 5}, {2}, device);
  CHECK_THROWS_WITH_AS(embedding(there({3, 4}), ids),
                       "embedding: id 5 at position 1 is outside a table of 3 rows", Error);
  CHECK_THROWS_WITH_AS(cross_entropy(there({2, 3}), ids),
                       "cross_entropy: target 5 of row 1 is outside the 3 classes", Error);
  CHECK_THROWS_WITH_AS(
      index_select(there({3}), 0, ids),
      "index_select: index 5 at position 1 is out of range for dim 0 of shape [3] (extent 3)",
      Error);
}

TEST_CASE("a gradient goes back to where the tensor came from" * needs_device) {
  Tensor x = Tensor::from({1.0f, 2.0f, 3.0f}, {3});
  x.set_requires_grad();
  const Tensor y = sum(square(to(x, device)));
  CHECK(y.device() == device);
  CHECK(y.item() == 14);
  y.backward();
  CHECK(x.grad().device() == Device::cpu());
  CHECK(x.grad().to_vector<float>() == std::vector<float>{2, 4, 6});
  CHECK(to(x, Device::cpu()).is_same(x));
}

TEST_CASE("gradients add up on a device" * needs_device) {
  Tensor x = Tensor::from({1.0f, 2.0f}, {2}, device).set_requires_grad();
  const Tensor y = x * x + x;
  for (int i = 0; i < 2; ++i)
    y.backward(Tensor::full({2}, 1, DType::f32, device), i == 0);
  CHECK(x.grad().device() == device);
  CHECK(x.grad().to_vector<float>() == std::vector<float>{6, 10});
}

TEST_CASE("a gradient on another device is refused" * needs_device) {
  Tensor x = Tensor::from({1.0f, 2.0f}, {2}, device).set_requires_grad();
  CHECK_THROWS_WITH_AS(square(x).backward(here({2})),
                       "backward: the gradient is on cpu, the tensor on cuda:0", Error);
  CHECK_THROWS_WITH_AS(x.set_grad(here({2})),
                       "set_grad: the gradient is on cpu, the tensor on cuda:0", Error);
  const Tensor y = record("mine", square(x.detach()), {x},
                          [](const Tensor& dy) -> Tensors { return {dy.to(Device::cpu())}; });
  CHECK_THROWS_WITH_AS(y.backward(there({2})),
                       "mine: the gradient of input 0 is on cpu, the input on cuda:0", Error);
  CHECK_THROWS_WITH_AS(
      gradcheck([](const Tensors& in) { return square(in[0]); }, {x}),
      "gradcheck: needs tensors on the cpu, got one on cuda:0; let the function copy them", Error);
}

TEST_CASE("differences agree with a backward on a device" * needs_device) {
  const auto on_device = [](const Tensors& in) {
    const Tensor y = layer_norm(to(in[0], device), to(in[1], device), to(in[2], device), 1e-5);
    return to(softmax(y), Device::cpu());
  };
  const GradcheckResult result = gradcheck(
      on_device,
      {randn({2, 5}, 1, DType::f64), randn({5}, 2, DType::f64), randn({5}, 3, DType::f64)});
  CHECK_MESSAGE(result.ok, result.message);
}

TEST_CASE("values that are not finite are found on a device" * needs_device) {
  const DetectAnomaly detect;
  const Tensor x = Tensor::from({1.0f, 0.0f}, {2}, device);
  CHECK_THROWS_WITH_AS(log(x), "log: the result of shape [2] is not finite, the inputs are", Error);
}

}  // namespace
}  // namespace minim
