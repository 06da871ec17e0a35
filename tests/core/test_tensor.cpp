#include <array>
#include <cmath>
#include <limits>
#include <memory>

#include <doctest/doctest.h>

#include "core/tensor.h"

namespace minim {
namespace {

TEST_CASE("copying a tensor aliases its memory and clone copies it") {
  const Tensor x = Tensor::from({1.0f, 2.0f, 3.0f}, {3});
  const Tensor alias = x, copied = x.clone();
  fill(x, 7);
  CHECK(alias.to_vector<float>() == std::vector<float>{7, 7, 7});
  CHECK(copied.to_vector<float>() == std::vector<float>{1, 2, 3});
  CHECK(alias.is_same(x));
  CHECK_FALSE(copied.is_same(x));
  CHECK(alias.storage_id() == x.storage_id());
  CHECK(copied.storage_id() != x.storage_id());
}

TEST_CASE("a view shares memory and its offset counts from its parent's first element") {
  const Tensor x = Tensor::from({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {3, 4});
  const Tensor columns = x.view({4, 2}, {1, 4}, 4);  // rows 1 and 2, transposed
  CHECK(columns.to_vector<int>() == std::vector<int>{4, 8, 5, 9, 6, 10, 7, 11});
  const Tensor last = columns.view({2}, {4}, 3);
  CHECK(last.to_vector<int>() == std::vector<int>{7, 11});
  fill(last, -1);
  CHECK(x.to_vector<int>() == std::vector<int>{0, 1, 2, 3, 4, 5, 6, -1, 8, 9, 10, -1});
  CHECK_FALSE(columns.is_contiguous());
  CHECK(columns.contiguous().is_contiguous());
  CHECK(columns.contiguous().storage_id() != x.storage_id());
  CHECK(x.contiguous().is_same(x));
}

TEST_CASE("strides of extents of 1 or 0 do not matter to is_contiguous") {
  const Tensor x = Tensor::zeros({6});
  CHECK(x.view({2, 1, 3}, {3, 99, 1}).is_contiguous());
  CHECK(x.view({0, 3}, {5, 7}).is_contiguous());
  CHECK(x.view({}, {}).is_contiguous());
  CHECK_FALSE(x.view({2, 3}, {0, 1}).is_contiguous());
}

TEST_CASE("tensors are made zero, full or from values of every dtype") {
  CHECK(Tensor::zeros({2, 2}).to_vector<float>() == std::vector<float>(4, 0));
  for (DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64,
                      DType::u8, DType::boolean}) {
    const Tensor x = Tensor::full({3}, 1, dtype);
    CAPTURE(name_of(dtype));
    CHECK(x.dtype() == dtype);
    CHECK(x.bytes() == 3 * size_of(dtype));
    CHECK(x.to_vector<double>() == std::vector<double>{1, 1, 1});
  }
  CHECK(Tensor::from({true, false}, {2}).to_vector<int>() == std::vector<int>{1, 0});
  CHECK(Tensor::full({}, 2.5).item() == 2.5);
  CHECK(Tensor::full({1, 1}, -3, DType::i64).item() == -3);
  CHECK(Tensor::empty({0, 4}).numel() == 0);
}

TEST_CASE("conversion is exact where the dtype can hold the value") {
  const std::vector<int64_t> large = {(int64_t(1) << 24) + 1, -(int64_t(1) << 31), 2147483647};
  const Tensor i64 = Tensor::from(large, {3});
  CHECK(convert(convert(i64, DType::i32), DType::i64).to_vector<int64_t>() == large);
  CHECK(convert(convert(i64, DType::f64), DType::i64).to_vector<int64_t>() == large);
  CHECK(convert(i64, DType::i64).is_same(i64));
  const Tensor reals = Tensor::from({0.0, 0.25, -2.9, 255.7}, {4});
  CHECK(reals.to_vector<int32_t>() == std::vector<int32_t>{0, 0, -2, 255});
  CHECK(reals.to_vector<bool>() == std::vector<bool>{false, true, true, true});
  CHECK(convert(reals, DType::bf16).to_vector<float>() ==
        std::vector<float>{0, 0.25f, -2.90625f, 256});
}

TEST_CASE("copy reads and writes through strides") {
  const Tensor x = Tensor::from({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor y = Tensor::zeros({2, 3}, DType::f64);
  copy(y.view({3, 2}, {1, 3}), x.view({3, 2}, {1, 3}));
  CHECK(y.to_vector<int>() == std::vector<int>{1, 2, 3, 4, 5, 6});
  copy(y, x.view({2, 3}, {0, 1}, 3));  // row 1 twice
  CHECK(y.to_vector<int>() == std::vector<int>{4, 5, 6, 4, 5, 6});
  CHECK_THROWS_WITH_AS(copy(y, Tensor::zeros({3, 2})), "copy: shape [3, 2] does not fit [2, 3]",
                       Error);
}

TEST_CASE("every write through fill and copy counts as a new version") {
  const Tensor x = Tensor::zeros({4});
  const Tensor view = x.view({2}, {2});
  const int64_t before = x.version();
  fill(view, 1);
  CHECK(x.version() == before + 1);
  copy(x, Tensor::zeros({4}));
  CHECK(view.version() == before + 2);
  CHECK(x.clone().version() != before + 3);
}

TEST_CASE("borrowed memory is used in place and its owner kept alive") {
  auto owner = std::make_shared<std::array<float, 4>>(std::array<float, 4>{1, 2, 3, 4});
  const std::weak_ptr<void> watch = owner;
  const int64_t counted = memory::current();
  Tensor x = Tensor::borrow(owner->data(), {2, 2}, DType::f32, owner);
  CHECK(memory::current() == counted);
  float* data = owner->data();
  owner.reset();
  data[3] = 9;
  CHECK(x.to_vector<float>() == std::vector<float>{1, 2, 3, 9});
  x = Tensor();
  CHECK(watch.expired());
  CHECK_THROWS_WITH_AS(Tensor::borrow(data, {1}, DType::f32, nullptr),
                       "tensor: borrowed memory needs an owner that keeps it alive", Error);
}

TEST_CASE("owns_alone tells the only handle to its memory from others") {
  Tensor x = Tensor::zeros({2});
  CHECK(x.owns_alone());
  {
    const Tensor alias = x;
    CHECK_FALSE(x.owns_alone());
  }
  CHECK(x.owns_alone());
  const Tensor view = x.detach();
  CHECK_FALSE(x.owns_alone());
}

TEST_CASE("misuse of a tensor is refused in one sentence") {
  CHECK_THROWS_WITH_AS(Tensor::from({1.0f, 2.0f}, {3}), "tensor: 2 values do not fill shape [3]",
                       Error);
  CHECK_THROWS_WITH_AS(Tensor::empty({2, -1}), "tensor: shape [2, -1] has a negative extent",
                       Error);
  CHECK_THROWS_WITH_AS(Tensor::zeros({2}).item(), "item: needs exactly one element, got shape [2]",
                       Error);
  CHECK_THROWS_WITH_AS(Tensor::zeros({2}).data<int>(), "data: the tensor holds f32, asked for i32",
                       Error);
  CHECK_THROWS_WITH_AS(Tensor::zeros({4}).view({2}, {2}).values<float>(),
                       "values: a tensor of shape [2] and strides [2] is not contiguous", Error);
  CHECK_THROWS_WITH_AS(Tensor().shape(), "shape: the tensor is undefined", Error);
  CHECK_THROWS_WITH_AS(Tensor::zeros({2, 3}).size(2),
                       "size: dim 2 is out of range for shape [2, 3]", Error);
  CHECK(Tensor::zeros({2, 3}).size(-1) == 3);
}

TEST_CASE("a shape whose size overflows is refused before anything is allocated") {
  constexpr int64_t big = int64_t(1) << 40;
  const char* text =
      "tensor: shape [1099511627776, 1099511627776] has more elements than memory can hold";
  CHECK_THROWS_WITH_AS(Tensor::empty({big, big}, DType::u8), text, Error);
  CHECK_THROWS_AS(Tensor::empty({big, big, 0}), Error);
  CHECK_THROWS_AS(Tensor::empty({std::numeric_limits<int64_t>::max()}, DType::f64), Error);
}

}  // namespace
}  // namespace minim
