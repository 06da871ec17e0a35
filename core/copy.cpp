#include "core/backend.h"
#include "core/launch.h"
#include "core/tensor.h"

namespace minim {

// 16-bit floats are converted by way of float; everything else is a plain cast.
template <class To, class From>
struct CopyKernel {
  To* to;
  const From* from;

  HD void operator()(const Offsets<2>& at) const { to[at[0]] = cast(from[at[1]]); }

 private:
  HD static To cast(From x) {
    if constexpr (std::is_same_v<To, From>)
      return x;
    else if constexpr (std::is_same_v<To, bool>)
      return Number<From>(x) != 0;
    else
      return To(Number<To>(Number<From>(x)));
  }
  template <class T>
  using Number = std::conditional_t<std::is_same_v<T, f16> || std::is_same_v<T, bf16>, float, T>;
};

template <class T>
struct FillKernel {
  T* to;
  T value;

  HD void operator()(const Offsets<1>& at) const { to[at[0]] = value; }
};

void fill(const Tensor& destination, double value) {
  const BroadcastPlan<1> plan(destination.shape(), {&destination});
  dispatch_any(destination.dtype(), [&]<class T>() {
    T element;
    if constexpr (std::is_same_v<T, bool>)
      element = value != 0;
    else if constexpr (std::is_integral_v<T>)
      element = T(value);
    else
      element = T(Compute<T>(value));
    launch_broadcast(destination.device(), plan, FillKernel<T>{destination.data<T>(), element});
  });
  destination.bump_version();
}

// Between devices, the bytes of contiguous tensors of one dtype are copied; whatever else is needed
// is done before, on the source's device, or after, on the destination's.
static void copy_across(const Tensor& destination, const Tensor& source) {
  const memory::Scope scope(memory::Category::workspace);
  const Tensor dense = convert(source.contiguous(), destination.dtype());
  if (!destination.is_contiguous()) {
    copy(destination, dense.to(destination.device()));
    return;
  }
  if (dense.bytes() == 0) return;
  const Device to = destination.device(), from = source.device();
  if (from.is_cpu())
    backend(to).copy_in(to, destination.raw(), dense.raw(), size_t(dense.bytes()));
  else if (to.is_cpu())
    backend(from).copy_out(from, destination.raw(), dense.raw(), size_t(dense.bytes()));
  else
    copy(destination, dense.to(Device::cpu()));
  destination.bump_version();
}

void copy(const Tensor& destination, const Tensor& source) {
  check(destination.shape() == source.shape(), "copy: shape {} does not fit {}", source.shape(),
        destination.shape());
  if (destination.device() != source.device()) {
    copy_across(destination, source);
    return;
  }
  const BroadcastPlan<2> plan(destination.shape(), {&destination, &source});
  dispatch_any(destination.dtype(), [&]<class To>() {
    dispatch_any(source.dtype(), [&]<class From>() {
      launch_broadcast(destination.device(), plan,
                       CopyKernel<To, From>{destination.data<To>(), source.data<From>()});
    });
  });
  destination.bump_version();
}

Tensor convert(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  const Tensor y = x.new_empty(x.shape(), dtype);
  copy(y, x);
  return y;
}

}  // namespace minim
