#include <optional>

#include "autograd/ops.h"
#include "autograd/ops/checks.h"

// Views share their input's memory. Their gradients are views as well, except for a part of a
// tensor, whose gradient is zero elsewhere.
namespace minim {

namespace {

// Replaces the one extent of -1 and checks the number of elements.
Shape resolve_shape(const Tensor& x, const Shape& asked) {
  Shape shape = asked;
  int unknown = -1;
  int64_t known = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == -1 && unknown < 0) {
      unknown = i;
      continue;
    }
    check(shape[i] >= 0, "reshape: shape {} has a negative extent (only one may be -1)", asked);
    known *= shape[i];
  }
  if (unknown >= 0) {
    check(known > 0 && x.numel() % known == 0, "reshape: {} does not fit into {}", x.shape(),
          asked);
    shape[unknown] = x.numel() / known;
  }
  check(shape.numel() == x.numel(), "reshape: {} does not fit into {}", x.shape(), asked);
  return shape;
}

// Strides that show the same elements in the same order, if there are any: each run of dims that
// lie without gaps is split anew.
std::optional<Shape> strides_for(const Tensor& x, const Shape& shape) {
  if (x.is_contiguous()) return contiguous_strides(shape);
  Shape extents, steps;  // without extents of 1, which may have any stride
  for (int i = 0; i < x.rank(); ++i) {
    if (x.shape()[i] == 1) continue;
    extents.push_back(x.shape()[i]);
    steps.push_back(x.strides()[i]);
  }
  Shape strides = shape;
  int to = shape.rank() - 1;
  int64_t run = 1, step = steps.back();
  for (int from = extents.rank() - 1; from >= 0; --from) {
    run *= extents[from];
    if (from > 0 && steps[from - 1] == steps[from] * extents[from]) continue;
    int64_t covered = 1;
    while (to >= 0 && (covered < run || shape[to] == 1)) {
      strides[to] = covered * step;
      covered *= shape[to--];
    }
    if (covered != run) return std::nullopt;
    run = 1;
    if (from > 0) step = steps[from - 1];
  }
  return strides;
}

// A gradient of `shape` that is zero but for one view of it.
Tensor embed(const Tensor& dy, const Shape& shape, const Shape& strides, int64_t offset) {
  const Tensor dx = dy.new_zeros(shape, dy.dtype());
  copy(dx.view(dy.shape(), strides, offset), dy);
  return dx;
}

}  // namespace

Tensor reshape(const Tensor& x, const Shape& asked) {
  const Shape shape = resolve_shape(x, asked);
  if (shape == x.shape()) return x;
  const std::optional<Shape> strides = strides_for(x, shape);
  const Tensor y =
      strides ? x.view(shape, *strides) : x.contiguous().view(shape, contiguous_strides(shape));
  return record("reshape", y, {x},
                [from = x.shape()](const Tensor& dy) -> Tensors { return {reshape(dy, from)}; });
}

Tensor permute(const Tensor& x, const Dims& order) {
  check(int(order.size()) == x.rank(), "permute: {} dims do not order shape {}", order.size(),
        x.shape());
  Shape shape, strides;
  Dims inverse(order.size(), -1);
  for (size_t i = 0; i < order.size(); ++i) {
    const int from = normalize_dim(order[i], x.shape(), "permute");
    check(inverse[size_t(from)] < 0, "permute: dim {} of shape {} is named twice", order[i],
          x.shape());
    inverse[size_t(from)] = int64_t(i);
    shape.push_back(x.shape()[from]);
    strides.push_back(x.strides()[from]);
  }
  return record("permute", x.view(shape, strides), {x},
                [inverse](const Tensor& dy) -> Tensors { return {permute(dy, inverse)}; });
}

Tensor transpose(const Tensor& x, int64_t any_dim0, int64_t any_dim1) {
  const int dim0 = normalize_dim(any_dim0, x.shape(), "transpose");
  const int dim1 = normalize_dim(any_dim1, x.shape(), "transpose");
  if (dim0 == dim1) return x;
  Shape shape = x.shape(), strides = x.strides();
  std::swap(shape[dim0], shape[dim1]);
  std::swap(strides[dim0], strides[dim1]);
  return record("transpose", x.view(shape, strides), {x},
                [dim0, dim1](const Tensor& dy) -> Tensors { return {transpose(dy, dim0, dim1)}; });
}

Tensor expand(const Tensor& x, const Shape& shape) {
  const int lead = shape.rank() - x.rank();
  check(lead >= 0, "expand: {} has more dims than {}", x.shape(), shape);
  if (shape == x.shape()) return x;
  Shape strides = shape;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool same = i >= lead && x.shape()[i - lead] == shape[i];
    check(shape[i] >= 0 && (same || i < lead || x.shape()[i - lead] == 1),
          "expand: {} does not broadcast to {}", x.shape(), shape);
    strides[i] = same ? x.strides()[i - lead] : 0;
  }
  return record("expand", x.view(shape, strides), {x},
                [from = x.shape()](const Tensor& dy) -> Tensors { return {sum_to(dy, from)}; });
}

Tensor slice(const Tensor& x, int64_t any_dim, int64_t begin, int64_t end, int64_t step) {
  const int dim = normalize_dim(any_dim, x.shape(), "slice");
  const int64_t extent = x.shape()[dim];
  check(step > 0, "slice: step {} must be positive", step);
  check(0 <= begin && begin <= end && end <= extent,
        "slice: {} to {} does not lie within dim {} of shape {}", begin, end, any_dim, x.shape());
  if (begin == 0 && end == extent && step == 1) return x;
  Shape shape = x.shape(), strides = x.strides();
  shape[dim] = (end - begin + step - 1) / step;
  strides[dim] *= step;
  return record("slice", x.view(shape, strides, begin * x.strides()[dim]), {x},
                [full = x.shape(), dim, begin, step](const Tensor& dy) -> Tensors {
                  Shape into = contiguous_strides(full);
                  const int64_t offset = begin * into[dim];
                  into[dim] *= step;
                  return {embed(dy, full, into, offset)};
                });
}

Tensor select(const Tensor& x, int64_t any_dim, int64_t any_index) {
  const int dim = normalize_dim(any_dim, x.shape(), "select");
  const int64_t extent = x.shape()[dim];
  check(any_index >= -extent && any_index < extent,
        "select: index {} is out of range for dim {} of shape {}", any_index, any_dim, x.shape());
  const int64_t index = any_index < 0 ? any_index + extent : any_index;
  Shape shape = x.shape(), strides = x.strides();
  shape.erase(dim);
  strides.erase(dim);
  return record("select", x.view(shape, strides, index * x.strides()[dim]), {x},
                [full = x.shape(), dim, index](const Tensor& dy) -> Tensors {
                  Shape into = contiguous_strides(full);
                  const int64_t offset = index * into[dim];
                  into.erase(dim);
                  return {embed(dy, full, into, offset)};
                });
}

Tensor unsqueeze(const Tensor& x, int64_t any_dim) {
  const int64_t rank = x.rank() + 1;
  check(any_dim >= -rank && any_dim < rank, "unsqueeze: dim {} is out of range for shape {}",
        any_dim, x.shape());
  const int dim = int(any_dim < 0 ? any_dim + rank : any_dim);
  Shape shape = x.shape(), strides = x.strides();
  strides.insert(dim, dim < x.rank() ? strides[dim] * shape[dim] : 1);
  shape.insert(dim, 1);
  return record("unsqueeze", x.view(shape, strides), {x},
                [dim](const Tensor& dy) -> Tensors { return {squeeze(dy, dim)}; });
}

Tensor squeeze(const Tensor& x, int64_t any_dim) {
  const int dim = normalize_dim(any_dim, x.shape(), "squeeze");
  if (x.shape()[dim] != 1) return x;
  Shape shape = x.shape(), strides = x.strides();
  shape.erase(dim);
  strides.erase(dim);
  return record("squeeze", x.view(shape, strides), {x},
                [dim](const Tensor& dy) -> Tensors { return {unsqueeze(dy, dim)}; });
}

Tensor contiguous(const Tensor& x) {
  if (x.is_contiguous()) return x;
  return record("contiguous", x.clone(), {x}, [](const Tensor& dy) -> Tensors { return {dy}; });
}

}  // namespace minim
