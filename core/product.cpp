#include "core/product.h"

#include <algorithm>
#include <type_traits>

#include "core/parallel.h"

namespace minim {

namespace {

template <class T>
void multiply_on_cpu(const Product<T>& p) {
  check(p.a_sums == nullptr && (p.bias == nullptr || p.beta == 0),
        "multiply: the cpu adds no bias to what is there, and sums no rows");
  if (p.bias != nullptr) {
    // It lies in c before the product is added, which saves a pass over c.
    const int64_t grain = std::max<int64_t>(1, element_grain / std::max<int64_t>(p.n, 1));
    parallel_chunks(p.batch * p.m, grain, [&p](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        std::copy_n(p.bias, p.n, p.c + row / p.m * p.c_batch + row % p.m * p.c_stride);
    });
  }
  const T beta = p.bias != nullptr ? T(1) : p.beta;
  // Many products share the threads one by one; a single one is cut into tiles.
  if (p.batch == 1) {
    gemm<T>(p.m, p.n, p.k, p.alpha, p.a, p.b, beta, p.c, p.c_stride);
    return;
  }
  parallel_tasks(p.batch, [&p, beta](int64_t i) {
    Matrix<T> a = p.a, b = p.b;
    a.data += i * p.a_batch;
    b.data += i * p.b_batch;
    gemm_serial<T>(p.m, p.n, p.k, p.alpha, a, b, beta, p.c + i * p.c_batch, p.c_stride);
  });
}

}  // namespace

template <class T>
void multiply(Device device, const Product<T>& product) {
  if (device.is_cuda())
    cuda::multiply(device, product);
  else if constexpr (std::is_same_v<T, Compute<T>>)
    multiply_on_cpu(product);
  else
    fail("multiply: the cpu needs f32 or f64, got {}", name_of(dtype_of<T>));
}

template void multiply(Device, const Product<float>&);
template void multiply(Device, const Product<double>&);
template void multiply(Device, const Product<f16>&);
template void multiply(Device, const Product<bf16>&);

}  // namespace minim
