#include <algorithm>

#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "autograd/ops/checks.h"

namespace minim {

Tensor concat(const Tensors& given_parts, int64_t any_dim) {
  check(!given_parts.empty(), "concat: needs at least one tensor");
  const auto differs = [&](const Tensor& part) { return part.dtype() != given_parts[0].dtype(); };
  Tensors parts = given_parts;
  if (std::ranges::any_of(parts, differs))
    std::ranges::transform(parts, parts.begin(), to_full_precision);
  const Tensor& first = parts.front();
  const int dim = normalize_dim(any_dim, first.shape(), "concat");
  Shape shape = first.shape();
  shape[dim] = 0;
  for (const Tensor& part : parts) {
    check_alike("concat", first, part);
    Shape fitting = part.shape();
    if (fitting.rank() == first.rank()) fitting[dim] = first.shape()[dim];
    check(fitting == first.shape(), "concat: shapes {} and {} differ in more than dim {}",
          first.shape(), part.shape(), any_dim);
    shape[dim] += part.shape()[dim];
  }
  const Tensor y = first.new_empty(shape);
  std::vector<int64_t> begins = {0};
  for (const Tensor& part : parts) {
    copy(y.view(part.shape(), y.strides(), begins.back() * y.strides()[dim]), part);
    begins.push_back(begins.back() + part.shape()[dim]);
  }
  return record("concat", y, parts, [begins, dim](const Tensor& dy) -> Tensors {
    Tensors gradients;
    for (size_t i = 0; i + 1 < begins.size(); ++i)
      gradients.push_back(slice(dy, dim, begins[i], begins[i + 1]));
    return gradients;
  });
}

Tensor stack(const Tensors& parts, int64_t dim) {
  check(!parts.empty(), "stack: needs at least one tensor");
  Tensors rows;
  for (const Tensor& part : parts) {
    check(part.shape() == parts.front().shape(), "stack: shapes {} and {} differ",
          parts.front().shape(), part.shape());
    rows.push_back(unsqueeze(part, dim));
  }
  return concat(rows, dim);
}

}  // namespace minim
