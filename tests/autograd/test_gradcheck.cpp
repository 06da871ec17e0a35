#include <doctest/doctest.h>

#include "autograd/gradcheck.h"
#include "autograd/node.h"
#include "autograd/ops.h"
#include "core/random.h"

namespace minim {
namespace {

// x * x with a backward of the test's choosing.
Tensor square_with(const Tensor& x, Backward backward) {
  return record("square", x.detach() * x.detach(), {x}, std::move(backward));
}

Tensor ramp(DType dtype) {
  return convert(Tensor::from({0.5, 1.0, 1.5, 2.0, 2.5, 3.0}, {2, 3}), dtype);
}

TEST_CASE("gradcheck accepts a right backward in f64 and f32") {
  for (DType dtype : {DType::f64, DType::f32}) {
    const GradcheckResult result = gradcheck(
        [](const Tensors& in) {
          return square_with(in[0], [x = Saved(in[0])](const Tensor& dy) -> Tensors {
            return {dy * x.get() * 2};
          });
        },
        {ramp(dtype)});
    CHECK_MESSAGE(result.ok, result.message);
    CHECK(result.worst_error < (dtype == DType::f64 ? 1e-10 : 1e-4));
  }
}

TEST_CASE("gradcheck names the input and the element of a wrong gradient") {
  const auto wrong = [](const Tensors& in) {
    const Tensor y = square_with(in[1], [x = Saved(in[1])](const Tensor& dy) -> Tensors {
      const Tensor dx = dy * x.get() * 2;
      dx.data<double>()[4] += 0.5;
      return {dx};
    });
    return y + in[0] * 0;
  };
  const GradcheckResult result = gradcheck(wrong, {ramp(DType::f64), ramp(DType::f64)});
  CHECK_FALSE(result.ok);
  CHECK(result.message.starts_with("gradcheck: input 1 element [1, 1]: backward says "));
  CHECK(result.message.ends_with("(allowed 1e-08)"));
  CHECK(result.worst_error > 0.05);
}

TEST_CASE("gradcheck finds a gradient that is missing, a factor off or not finite") {
  const auto with = [](double factor) {
    return gradcheck(
               [factor](const Tensors& in) {
                 return square_with(in[0], [x = Saved(in[0]), factor](const Tensor& dy) -> Tensors {
                   if (factor == 0) return {Tensor()};
                   return {dy * x.get() * factor};
                 });
               },
               {ramp(DType::f32)})
        .ok;
  };
  CHECK(with(2));
  CHECK_FALSE(with(2.02));
  CHECK_FALSE(with(0));
  CHECK_FALSE(with(std::numeric_limits<double>::quiet_NaN()));
}

TEST_CASE("gradcheck finds a backward that reads memory it never wrote") {
#if !defined(__SANITIZE_ADDRESS__)  // whose allocator has no pool to poison
  const GradcheckResult result = gradcheck(
      [](const Tensors& in) {
        return square_with(in[0], [x = Saved(in[0])](const Tensor& dy) -> Tensors {
          const Tensor dx = Tensor::empty(dy.shape(), dy.dtype());  // should be zeros
          add_into(dx, dy * x.get() * 2);
          return {dx};
        });
      },
      {ramp(DType::f64)});
  CHECK_FALSE(result.ok);
#endif
}

TEST_CASE("gradcheck finds a gradient that changes from one backward to the next") {
  int calls = 0;
  const GradcheckResult result = gradcheck(
      [&calls](const Tensors& in) {
        return square_with(in[0], [x = Saved(in[0]), &calls](const Tensor& dy) -> Tensors {
          return {dy * x.get() * (++calls > 2 ? 3 : 2)};
        });
      },
      {ramp(DType::f64)});
  CHECK_FALSE(result.ok);
  CHECK(result.message.find("after a second backward") != std::string::npos);
}

TEST_CASE("gradcheck passes integers and undefined tensors through and leaves inputs alone") {
  const Tensor x = randn({4, 3}, 1, DType::f64), before = x.clone();
  const GradcheckResult result = gradcheck(
      [](const Tensors& in) { return linear(index_select(in[0], 0, in[1]), in[0], in[2]); },
      {x, Tensor::from({3, 0}, {2}), Tensor()});
  CHECK_MESSAGE(result.ok, result.message);
  CHECK(x.to_vector<double>() == before.to_vector<double>());
  CHECK_FALSE(x.requires_grad());
}

TEST_CASE("gradcheck works on views, expanded ones too") {
  const Tensor x = randn({4, 6}, 1, DType::f64);
  const auto f = [](const Tensors& in) { return sum(in[0] * in[0] * in[0]); };
  CHECK(gradcheck(f, {x.view({3, 4}, {2, 6}, 1)}).ok);
  CHECK(gradcheck(f, {x.view({3, 4}, {0, 1})}).ok);
  CHECK(gradcheck(f, {Tensor::zeros({0, 2}, DType::f64)}).ok);
}

TEST_CASE("gradcheck says so when nothing can be checked") {
  const auto detached = [](const Tensors& in) { return in[0].detach() * 2; };
  CHECK(gradcheck(detached, {ramp(DType::f64)}).message ==
        "gradcheck: the result depends on no input through the graph");
  CHECK_THROWS_WITH_AS(gradcheck(detached, {ramp(DType::f16)}),
                       "gradcheck: needs f32 or f64, got f16", Error);
}

}  // namespace
}  // namespace minim
