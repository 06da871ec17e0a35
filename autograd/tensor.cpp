#include <algorithm>

#include "autograd/graph.h"
#include "autograd/set_data.h"

// The members of Tensor that know of gradients.
namespace minim {

namespace {

GradMeta& meta_of(Tensor::Impl& impl) {
  if (!impl.grad) impl.grad = std::make_shared<GradMeta>();
  return *impl.grad;
}

void check_writable(const Tensor& x, std::string_view op) {
  check(!grad_enabled() || !x.requires_grad(),
        "{}: a tensor of shape {} that requires a gradient is written in place only under NoGrad",
        op, x.shape());
}

}  // namespace

void Tensor::fill_(double value) {
  check_writable(*this, "fill_");
  minim::fill(*this, value);
}

void Tensor::copy_(const Tensor& source) {
  check_writable(*this, "copy_");
  check(!grad_enabled() || !source.requires_grad(),
        "copy_: the source of shape {} requires a gradient that a copy in place would lose; use "
        "detach()",
        source.shape());
  minim::copy(*this, source);
}

bool Tensor::requires_grad() const {
  const Impl& self = checked("requires_grad");
  return self.grad && self.grad->requires_grad;
}

Tensor& Tensor::set_requires_grad(bool on) {
  check(is_leaf(), "set_requires_grad: a tensor of shape {} was computed from others; use detach()",
        shape());
  check(!on || is_floating(dtype()), "set_requires_grad: needs f32, f64, f16 or bf16, got {}",
        name_of(dtype()));
  meta_of(*impl_).requires_grad = on;
  return *this;
}

Tensor Tensor::grad() const {
  const Impl& self = checked("grad");
  return self.grad ? self.grad->grad : Tensor();
}

void Tensor::set_grad(Tensor grad) {
  checked("set_grad");
  if (grad.defined()) {
    check(grad.shape() == shape() && grad.dtype() == dtype(),
          "set_grad: the gradient is {} {}, the tensor is {} {}", name_of(grad.dtype()),
          grad.shape(), name_of(dtype()), shape());
    check(grad.device() == device(), "set_grad: the gradient is on {}, the tensor on {}",
          grad.device(), device());
  }
  meta_of(*impl_).grad = std::move(grad);
}

void set_data(const Tensor& x, const Tensor& other) {
  check(x.is_leaf(), "set_data: a tensor of shape {} was computed from others; use detach()",
        x.shape());
  check(other.shape() == x.shape() && other.dtype() == x.dtype(),
        "set_data: the data are {} {}, the tensor is {} {}", name_of(other.dtype()), other.shape(),
        name_of(x.dtype()), x.shape());
  Tensor::Impl& self = *x.impl();
  const Tensor::Impl& from = *other.impl();
  // Anew, since a graph recorded before would bring a gradient from where the memory was.
  const bool trained = x.requires_grad();
  self.grad = nullptr;
  if (trained) meta_of(*x.impl()).requires_grad = true;
  // Whoever saved the old memory for a backward sees that it is no longer this tensor's.
  from.storage->version = std::max(from.storage->version, self.storage->version) + 1;
  self.storage = from.storage;
  self.strides = from.strides;
  self.offset = from.offset;
}

bool Tensor::is_leaf() const {
  const Impl& self = checked("is_leaf");
  return !self.grad || !self.grad->node;
}

void Tensor::retain_grad() {
  check(requires_grad(), "retain_grad: a tensor of shape {} requires no gradient", shape());
  meta_of(*impl_).retain_grad = true;
}

}  // namespace minim
