#include "core/random.h"

#include "core/launch.h"
#include "core/math.h"

namespace minim {

namespace {

// 64-bit FNV-1a: any fixed hash will do, as long as it never changes.
uint64_t stream_of(std::string_view name) {
  uint64_t h = 14695981039346656037ull;
  for (unsigned char c : name)
    h = (h ^ c) * 1099511628211ull;
  return h;
}

void check_contiguous(std::string_view op, const Tensor& x) {
  check(x.is_contiguous(), "{}: a tensor of shape {} and strides {} is not contiguous", op,
        x.shape(), x.strides());
}

}  // namespace

// Box-Muller on two words of the element's own block. In float, so that f32 and f64 agree.
template <class T>
struct NormalKernel {
  T* x;
  double mean, std;
  uint64_t seed, stream;

  HD void operator()(int64_t i) const {
    const PhiloxBlock block = philox(seed, uint64_t(i), stream);
    const float u = 1.0f - uniform01(block.words[0]);  // (0, 1]
    const float v = uniform01(block.words[1]);
    const float radius = std::sqrt(-2.0f * std::log(u));
    x[i] = T(Compute<T>(mean + std * double(radius * std::cos(6.28318530717958648f * v))));
  }
};

template <class T>
struct UniformKernel {
  T* x;
  double low, high;
  uint64_t seed, stream;

  HD void operator()(int64_t i) const {
    const PhiloxBlock block = philox(seed, uint64_t(i), stream);
    x[i] = T(Compute<T>(low + (high - low) * double(uniform01(block.words[0]))));
  }
};

void fill_normal(const Tensor& x, double mean, double std, uint64_t seed, std::string_view name) {
  check_contiguous("fill_normal", x);
  dispatch_float(x.dtype(), "fill_normal", [&]<class T>() {
    launch_elements(x.device(), x.numel(),
                    NormalKernel<T>{x.data<T>(), mean, std, seed, stream_of(name)});
  });
  x.bump_version();
}

void fill_uniform(const Tensor& x, double low, double high, uint64_t seed, std::string_view name) {
  check_contiguous("fill_uniform", x);
  dispatch_float(x.dtype(), "fill_uniform", [&]<class T>() {
    launch_elements(x.device(), x.numel(),
                    UniformKernel<T>{x.data<T>(), low, high, seed, stream_of(name)});
  });
  x.bump_version();
}

Tensor randn(const Shape& shape, uint64_t seed, DType dtype) {
  const Tensor x = Tensor::empty(shape, dtype);
  fill_normal(x, 0, 1, seed, "randn");
  return x;
}

Tensor rand(const Shape& shape, uint64_t seed, DType dtype) {
  const Tensor x = Tensor::empty(shape, dtype);
  fill_uniform(x, 0, 1, seed, "rand");
  return x;
}

}  // namespace minim
