#include <cmath>

#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "autograd/ops/checks.h"
#include "core/launch.h"
#include "core/math.h"

namespace minim {

// y = softmax(x) over the keys that a bool mask allows, or of x + mask; zeros where no key is left.
// x, mask, y: [rows, n]
template <class T, class Mask>
struct MaskedSoftmaxForward {
  T* y;
  const T* x;
  const Mask* mask;
  int64_t n;

  template <class Group>
  HD void operator()(const Group& g, int64_t row) const {
    using R = Compute<T>;
    constexpr R infinity = std::numeric_limits<R>::infinity();
    const T* in = x + row * n;
    const Mask* m = mask + row * n;
    T* out = y + row * n;
    const auto score = [&](int64_t i) {
      if constexpr (std::is_same_v<Mask, bool>)
        return m[i] ? R(in[i]) : -infinity;
      else
        return R(in[i]) + R(m[i]);
    };
    const R largest = g.max(n, score);
    if (largest == -infinity) {
      g.each(n, [&](int64_t i) { out[i] = T(R(0)); });
      return;
    }
    const R scale = R(1) / g.sum(n, [&](int64_t i) { return math::exp(score(i) - largest); });
    g.each(n, [&](int64_t i) { out[i] = T(math::exp(score(i) - largest) * scale); });
  }
};

static Tensor masked_softmax(const Tensor& any_x, const Tensor& any_mask) {
  const Tensor x = any_x.contiguous(), y = Tensor::empty_like(x);
  const Tensor mask = expand(any_mask.detach(), x.shape()).contiguous();
  const int64_t n = x.size(-1), rows = n > 0 ? x.numel() / n : 0;
  dispatch_float(x.dtype(), "scaled_dot_product_attention", [&]<class T>() {
    if (mask.dtype() == DType::boolean)
      launch_rows(x.device(), rows, n,
                  MaskedSoftmaxForward<T, bool>{y.data<T>(), x.data<T>(), mask.data<bool>(), n});
    else
      launch_rows(x.device(), rows, n,
                  MaskedSoftmaxForward<T, T>{y.data<T>(), x.data<T>(), mask.data<T>(), n});
  });
  return record("scaled_dot_product_attention", y, {any_x, any_mask},
                [y = Saved(y), mask_shape = any_mask.shape(),
                 wants_dmask = any_mask.requires_grad()](const Tensor& dy) -> Tensors {
                  // A masked key has y = 0, so the plain formula gives it, and a row of zeros,
                  // zeros.
                  const Tensor dx = softmax_gradient(y.get(), dy);
                  return {dx, wants_dmask ? sum_to(dx, mask_shape) : Tensor()};
                });
}

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const Tensor& mask, std::optional<double> scale) {
  constexpr std::string_view op = "scaled_dot_product_attention";
  if (autocast_dtype()) {
    const Tensor low_q = to_autocast(q), low_k = to_autocast(k), low_v = to_autocast(v);
    const Tensor low_mask = to_autocast(mask);
    const Autocast as_one(std::nullopt);  // its parts are not cast one by one
    return scaled_dot_product_attention(low_q, low_k, low_v, low_mask, scale);
  }
  check_alike(op, q, k);
  check_alike(op, q, v);
  check(q.rank() >= 2 && k.rank() >= 2 && v.rank() >= 2 && q.size(-1) == k.size(-1) &&
            k.size(-2) == v.size(-2),
        "{}: q {}, k {} and v {} must be [.., lq, d], [.., lk, d] and [.., lk, dv]", op, q.shape(),
        k.shape(), v.shape());
  const Tensor scaled = affine(q, scale.value_or(1.0 / std::sqrt(double(q.size(-1)))), 0.0);
  const Tensor scores = matmul(scaled, transpose(k, -1, -2));
  if (!mask.defined()) return matmul(softmax(scores), v);
  check_same_device(op, q, mask);
  check(mask.dtype() == DType::boolean || mask.dtype() == q.dtype(),
        "{}: the mask must be bool or {}, got {}", op, name_of(q.dtype()), name_of(mask.dtype()));
  check(broadcast_shapes(mask.shape(), scores.shape(), op) == scores.shape(),
        "{}: mask {} does not broadcast to the scores {}", op, mask.shape(), scores.shape());
  return matmul(masked_softmax(scores, mask), v);
}

}  // namespace minim
