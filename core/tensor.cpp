#include "core/tensor.h"

#include <algorithm>
#include <limits>

#include "core/backend.h"
#include "core/tensor_impl.h"

namespace minim {

namespace {

// Of the widest dtype, so that a size in bytes never overflows.
constexpr int64_t most_elements = std::numeric_limits<int64_t>::max() / 8;

void check_extents(const Shape& shape) {
  int64_t n = 1;
  for (int64_t extent : shape) {
    check(extent >= 0, "tensor: shape {} has a negative extent", shape);
    check(!__builtin_mul_overflow(n, std::max<int64_t>(extent, 1), &n) && n <= most_elements,
          "tensor: shape {} has more elements than memory can hold", shape);
  }
}

std::shared_ptr<Tensor::Impl> make_impl(const Shape& shape, DType dtype) {
  auto impl = std::make_shared<Tensor::Impl>();
  impl->shape = shape;
  impl->strides = contiguous_strides(shape);
  impl->dtype = dtype;
  return impl;
}

}  // namespace

Tensor Tensor::empty(const Shape& shape, DType dtype, Device device) {
  check_extents(shape);
  auto impl = make_impl(shape, dtype);
  impl->storage = std::make_shared<Storage>(size_t(shape.numel() * size_of(dtype)),
                                            memory::Scope::category(), device);
  return Tensor(std::move(impl));
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor t = empty(shape, dtype, device);
  if (t.bytes() > 0) backend(device).set(device, t.raw(), 0, size_t(t.bytes()));
  return t;
}

Tensor Tensor::full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor t = empty(shape, dtype, device);
  minim::fill(t, value);
  return t;
}

Tensor Tensor::borrow(void* data, const Shape& shape, DType dtype, std::shared_ptr<void> owner) {
  check(owner != nullptr, "tensor: borrowed memory needs an owner that keeps it alive");
  check_extents(shape);
  auto impl = make_impl(shape, dtype);
  impl->storage = std::make_shared<Storage>(data, std::move(owner));
  return Tensor(std::move(impl));
}

const Tensor::Impl& Tensor::checked(std::string_view what) const {
  check(impl_ != nullptr, "{}: the tensor is undefined", what);
  return *impl_;
}

const Shape& Tensor::shape() const {
  return checked("shape").shape;
}

const Shape& Tensor::strides() const {
  return checked("strides").strides;
}

int64_t Tensor::size(int64_t dim) const {
  return shape()[normalize_dim(dim, shape(), "size")];
}

DType Tensor::dtype() const {
  return checked("dtype").dtype;
}

Device Tensor::device() const {
  return checked("device").storage->device();
}

bool Tensor::is_contiguous() const {
  const Impl& self = checked("is_contiguous");
  if (self.shape.numel() == 0) return true;
  int64_t step = 1;
  for (int i = self.shape.rank() - 1; i >= 0; --i) {
    if (self.shape[i] != 1 && self.strides[i] != step) return false;
    step *= self.shape[i];
  }
  return true;
}

void* Tensor::raw() const {
  const Impl& self = checked("data");
  auto* bytes = static_cast<std::byte*>(self.storage->data());
  const int64_t offset = self.offset * size_of(self.dtype);
  return offset == 0 ? bytes : bytes + offset;
}

double Tensor::item() const {
  check(numel() == 1, "item: needs exactly one element, got shape {}", shape());
  const Tensor here = to(Device::cpu());
  return dispatch_any(dtype(), [&]<class T>() { return double(*here.data<T>()); });
}

Tensor Tensor::contiguous() const {
  return is_contiguous() ? *this : clone();
}

Tensor Tensor::clone() const {
  Tensor t = empty_like(*this);
  copy(t, *this);
  return t;
}

Tensor Tensor::to(Device device) const {
  if (this->device() == device) return *this;
  const Impl& self = *impl_;
  if (const Tensor known = self.storage->on_host(); known.defined() && device.is_cpu())
    return known.view(self.shape, self.strides, self.offset).clone();
  Tensor t = empty(shape(), dtype(), device);
  copy(t, *this);
  // Indices are checked on the host again and again; there are few of them.
  if (device.is_cuda() && (dtype() == DType::i32 || dtype() == DType::i64)) {
    const memory::Scope scope(memory::Category::data);
    t.impl_->storage->keep_on_host(to(Device::cpu()).clone());
  }
  return t;
}

Tensor Tensor::detach() const {
  auto impl = std::make_shared<Impl>(checked("detach"));
  impl->grad = nullptr;
  return Tensor(std::move(impl));
}

Tensor Tensor::view(const Shape& shape, const Shape& strides, int64_t offset) const {
  Tensor t = detach();
  t.impl_->shape = shape;
  t.impl_->strides = strides;
  t.impl_->offset += offset;
  return t;
}

int64_t Tensor::version() const {
  return checked("version").storage->version;
}

void Tensor::bump_version() const {
  ++checked("bump_version").storage->version;
}

void Tensor::count_as(memory::Category category) const {
  checked("count_as").storage->count_as(category);
}

const void* Tensor::storage_id() const {
  return checked("storage_id").storage.get();
}

bool Tensor::owns_alone() const {
  const Storage& storage = *checked("owns_alone").storage;
  return impl_->storage.use_count() == 1 && impl_.use_count() == 1 &&
         storage.bytes() == size_t(bytes());
}

}  // namespace minim
