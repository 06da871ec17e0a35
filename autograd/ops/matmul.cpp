#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "autograd/ops/checks.h"
#include "core/product.h"

namespace minim {

namespace {

// A stack of matrices whose rows or columns are dense, so that gemm can read them without a copy.
struct Stack {
  Tensor tensor;
  bool transposed;
  int64_t stride;

  explicit Stack(const Tensor& x) : tensor(x) {
    const int64_t rows = x.size(-2), columns = x.size(-1);
    const int64_t row_step = x.strides()[x.rank() - 2], column_step = x.strides()[x.rank() - 1];
    if (column_step == 1 && row_step >= columns) {
      transposed = false;
      stride = row_step;
    } else if (row_step == 1 && column_step >= rows) {
      transposed = true;
      stride = column_step;
    } else {
      tensor = x.contiguous();
      transposed = false;
      stride = columns;
    }
  }

  // Element offset of matrix number `index` of a batch of that (broadcast) shape.
  int64_t offset(int64_t index, const Shape& batch) const {
    const int lead = batch.rank() - (tensor.rank() - 2);
    int64_t at = 0;
    for (int d = batch.rank() - 1; d >= 0; --d) {
      const int64_t i = index % batch[d];
      index /= batch[d];
      if (d >= lead && tensor.shape()[d - lead] != 1) at += i * tensor.strides()[d - lead];
    }
    return at;
  }

  // Whether the matrices of a batch begin at equal distances.
  bool evenly_spaced(const Shape& batch) const {
    const int64_t step = batch.numel() > 1 ? offset(1, batch) : 0;
    for (int64_t i = 2; i < batch.numel(); ++i)
      if (offset(i, batch) != i * step) return false;
    return true;
  }

  template <class T>
  Matrix<T> matrix(int64_t index, const Shape& batch) const {
    return {tensor.data<T>() + offset(index, batch), stride, transposed};
  }
};

Shape batch_of(const Tensor& x) {
  return Shape(std::span<const int64_t>(x.shape().begin(), x.shape().end() - 2));
}

// [.., m, k] by [.., k, n].
Tensor matmul_forward(const Tensor& a, const Tensor& b) {
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  const Shape batch = broadcast_shapes(batch_of(a), batch_of(b), "matmul");
  Shape shape = batch;
  shape.push_back(m);
  shape.push_back(n);
  const Tensor y = a.new_empty(shape);
  if (batch.numel() == 0) return y;
  const Stack left(a), right(b);
  dispatch_float(a.dtype(), "matmul", [&]<class T>() {
    const auto product = [&](int64_t i) {
      return Product<T>{
          m, n, k, left.matrix<T>(i, batch), right.matrix<T>(i, batch), y.data<T>() + i * m * n, n};
    };
    const int64_t count = batch.numel();
    if (left.evenly_spaced(batch) && right.evenly_spaced(batch)) {
      Product<T> all = product(0);
      all.batch = count;
      if (count > 1) {
        all.a_batch = left.offset(1, batch);
        all.b_batch = right.offset(1, batch);
        all.c_batch = m * n;
      }
      multiply(y.device(), all);
    } else {
      for (int64_t i = 0; i < count; ++i)
        multiply(y.device(), product(i));
    }
  });
  return y;
}

}  // namespace

Tensor matmul(const Tensor& given_a, const Tensor& given_b) {
  const Tensor a = to_autocast(given_a), b = to_autocast(given_b);
  check_floating("matmul", a);
  check_alike("matmul", a, b);
  check(a.rank() >= 1 && b.rank() >= 1, "matmul: shapes {} and {} must have at least one dim",
        a.shape(), b.shape());
  if (a.rank() == 1) return squeeze(matmul(unsqueeze(a, 0), b), b.rank() == 1 ? 0 : -2);
  if (b.rank() == 1) return squeeze(matmul(a, unsqueeze(b, 1)), -1);
  check(a.size(-1) == b.size(-2), "matmul: shapes {} and {} do not fit ({} columns, {} rows)",
        a.shape(), b.shape(), a.size(-1), b.size(-2));
  const DType dtype = a.dtype(), computed = product_dtype(dtype, a.device());
  const Tensor y = matmul_forward(convert(a, computed), convert(b, computed));
  const bool wants_da = a.requires_grad(), wants_db = b.requires_grad();
  return record("matmul", convert(y, dtype), {a, b},
                [a = Saved(a), b = Saved(b), wants_da, wants_db](const Tensor& dy) -> Tensors {
                  Tensor da, db;
                  if (wants_da)
                    da = sum_to(matmul(dy, transpose(b.get(), -1, -2)), a.get().shape());
                  if (wants_db)
                    db = sum_to(matmul(transpose(a.get(), -1, -2), dy), b.get().shape());
                  return {da, db};
                });
}

}  // namespace minim
