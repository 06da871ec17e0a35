#include "autograd/ops.h"
#include "autograd/ops/checks.h"
#include "core/gemm.h"
#include "core/parallel.h"

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

  template <class R>
  Matrix<R> matrix(int64_t index, const Shape& batch) const {
    return {tensor.data<R>() + offset(index, batch), stride, transposed};
  }
};

Shape batch_of(const Tensor& x) {
  return Shape(std::span<const int64_t>(x.shape().begin(), x.shape().end() - 2));
}

// [.., m, k] by [.., k, n] in f32 or f64.
Tensor matmul_forward(const Tensor& a, const Tensor& b) {
  const int64_t m = a.size(-2), k = a.size(-1), n = b.size(-1);
  const Shape batch = broadcast_shapes(batch_of(a), batch_of(b), "matmul");
  Shape shape = batch;
  shape.push_back(m);
  shape.push_back(n);
  const Tensor y = Tensor::empty(shape, a.dtype());
  const Stack left(a), right(b);
  const int64_t count = batch.numel();
  dispatch_float(a.dtype(), "matmul", [&]<class T>() {
    using R = Compute<T>;
    R* out = y.data<R>();
    // Many products share the threads one by one; a single one is cut into tiles.
    if (count == 1) {
      gemm<R>(m, n, k, R(1), left.matrix<R>(0, batch), right.matrix<R>(0, batch), R(0), out, n);
      return;
    }
    parallel_tasks(count, [&](int64_t i) {
      gemm_serial<R>(m, n, k, R(1), left.matrix<R>(i, batch), right.matrix<R>(i, batch), R(0),
                     out + i * m * n, n);
    });
  });
  return y;
}

}  // namespace

Tensor matmul(const Tensor& a, const Tensor& b) {
  check_floating("matmul", a);
  check_same_dtype("matmul", a, b);
  check(a.rank() >= 1 && b.rank() >= 1, "matmul: shapes {} and {} must have at least one dim",
        a.shape(), b.shape());
  if (a.rank() == 1) return squeeze(matmul(unsqueeze(a, 0), b), b.rank() == 1 ? 0 : -2);
  if (b.rank() == 1) return squeeze(matmul(a, unsqueeze(b, 1)), -1);
  check(a.size(-1) == b.size(-2), "matmul: shapes {} and {} do not fit ({} columns, {} rows)",
        a.shape(), b.shape(), a.size(-1), b.size(-2));
  const DType dtype = a.dtype(), computed = compute_dtype(dtype);
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
