#include "core/gemm.h"

#include <algorithm>

// g++ 12 warns of its own AVX-512 intrinsics once Eigen's kernels are inlined.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"

// Eigen would cut the work by the number of threads, and its rounding with it.
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

#include "core/parallel.h"

namespace minim {

namespace {

template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using ConstMap = Eigen::Map<const RowMajor<T>, 0, Eigen::OuterStride<>>;

template <class T>
ConstMap<T> map(const Matrix<T>& m, int64_t rows, int64_t columns) {
  return {m.data, rows, columns, Eigen::OuterStride<>(m.stride)};
}

// Multiplications that one tile holds at least; fewer are not worth another thread.
constexpr int64_t tile_work = int64_t(1) << 21;
constexpr int64_t most_tiles = 64;

}  // namespace

template <class T>
void gemm_serial(int64_t m, int64_t n, int64_t k, T alpha, Matrix<T> a, Matrix<T> b, T beta, T* c,
                 int64_t c_stride) {
  Eigen::Map<RowMajor<T>, 0, Eigen::OuterStride<>> out(c, m, n, Eigen::OuterStride<>(c_stride));
  if (beta == T(0))
    out.setZero();
  else if (beta != T(1))
    out *= beta;
  if (m == 0 || n == 0 || k == 0) return;
  if (a.transposed && b.transposed)
    out.noalias() += alpha * map(a, k, m).transpose() * map(b, n, k).transpose();
  else if (a.transposed)
    out.noalias() += alpha * map(a, k, m).transpose() * map(b, k, n);
  else if (b.transposed)
    out.noalias() += alpha * map(a, m, k) * map(b, n, k).transpose();
  else
    out.noalias() += alpha * map(a, m, k) * map(b, k, n);
}

template <class T>
void gemm(int64_t m, int64_t n, int64_t k, T alpha, Matrix<T> a, Matrix<T> b, T beta, T* c,
          int64_t c_stride) {
  // Tiles split the longer side of c, never k: each element is summed by one thread, in one order.
  const int64_t tiles =
      std::clamp(m * n * std::max<int64_t>(k, 1) / tile_work, int64_t(1), most_tiles);
  const bool by_rows = m >= n;
  const int64_t side = by_rows ? m : n;
  const int64_t width = std::max<int64_t>((side / tiles + 47) / 48 * 48, 48);
  parallel_tasks((side + width - 1) / width, [&](int64_t tile) {
    const int64_t begin = tile * width;
    const int64_t length = std::min(width, side - begin);
    Matrix<T> part = by_rows ? a : b;
    part.data += part.transposed == by_rows ? begin : begin * part.stride;
    if (by_rows)
      gemm_serial(length, n, k, alpha, part, b, beta, c + begin * c_stride, c_stride);
    else
      gemm_serial(m, length, k, alpha, a, part, beta, c + begin, c_stride);
  });
}

template void gemm(int64_t, int64_t, int64_t, float, Matrix<float>, Matrix<float>, float, float*,
                   int64_t);
template void gemm(int64_t, int64_t, int64_t, double, Matrix<double>, Matrix<double>, double,
                   double*, int64_t);
template void gemm_serial(int64_t, int64_t, int64_t, float, Matrix<float>, Matrix<float>, float,
                          float*, int64_t);
template void gemm_serial(int64_t, int64_t, int64_t, double, Matrix<double>, Matrix<double>, double,
                          double*, int64_t);

}  // namespace minim
