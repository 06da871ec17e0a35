#include "autograd/ops.h"
#include "core/launch.h"
#include "core/recording.h"

namespace minim {

// The eight elements of one Philox block; the same lines for the forward and the backward, which
// draws the mask again instead of keeping it.
template <class T>
struct DropoutKernel {
  T* y;
  const T* x;
  int64_t n;
  DropoutMask mask;

  HD void operator()(int64_t index) const {
    const PhiloxBlock block = mask.block(uint64_t(index));
    const int64_t begin = index * 8, end = begin + 8 < n ? begin + 8 : n;
    const Compute<T> scale(mask.scale());
    for (int64_t i = begin; i < end; ++i)
      y[i] = DropoutMask::bits(block, i) >= mask.threshold ? T(Compute<T>(x[i]) * scale)
                                                           : T(Compute<T>(0));
  }
};

static Tensor apply_mask(const Tensor& any_x, const DropoutMask& mask) {
  const Tensor x = any_x.contiguous();
  const Tensor y = Tensor::empty_like(x);
  dispatch_float(x.dtype(), "dropout", [&]<class T>() {
    launch_elements(x.device(), int64_t(DropoutMask::blocks(x.numel())),
                    DropoutKernel<T>{y.data<T>(), x.data<T>(), x.numel(), mask});
  });
  return y;
}

Tensor dropout(const Tensor& x, float p, Generator& generator) {
  check(p >= 0 && p <= 1, "dropout: p = {} must lie between 0 and 1", p);
  if (p == 0) return x;
  const int64_t rows = x.rank() > 0 ? x.size(0) : 1, width = rows > 0 ? x.numel() / rows : 0;
  const DropoutMask mask = draw_mask(p, generator, [rows, width](const RealRows& real) {
    return DropoutMask::blocks(real.of(rows) * width);
  });
  return record("dropout", apply_mask(x, mask), {x},
                [mask](const Tensor& dy) -> Tensors { return {apply_mask(dy, mask)}; });
}

}  // namespace minim
