#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/memory.h"
#include "core/shape.h"

namespace minim {

class Storage;
struct GradMeta;  // gradient and graph node; defined and used by autograd/ alone
class Tensor;
using Tensors = std::vector<Tensor>;

// A cheap handle to an n-dimensional array: storage, shape, strides, dtype, device, and (kept by
// autograd) a gradient and the node that made it. Copying aliases the same memory; clone() copies.
// `const Tensor&` means "not rebound", not "immutable". A default-made Tensor is undefined.
class Tensor {
 public:
  Tensor() = default;

  // Uninitialised, zeros, or all equal to a value.
  static Tensor empty(const Shape& shape, DType dtype = DType::f32, Device device = Device());
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32, Device device = Device());
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32,
                     Device device = Device());
  // Uninitialised, of another tensor's shape, dtype and device.
  static Tensor empty_like(const Tensor& x) { return empty(x.shape(), x.dtype(), x.device()); }
  // On this tensor's device, and of its dtype where none is given: what an operation makes its
  // results with.
  Tensor new_empty(const Shape& shape) const { return empty(shape, dtype(), device()); }
  Tensor new_empty(const Shape& shape, DType dtype) const { return empty(shape, dtype, device()); }
  Tensor new_zeros(const Shape& shape, DType dtype) const { return zeros(shape, dtype, device()); }
  Tensor new_full(const Shape& shape, double value, DType dtype) const {
    return full(shape, value, dtype, device());
  }
  // Copies values; their number must be shape.numel().
  template <class T>
  static Tensor from(std::span<const T> values, const Shape& shape, Device device = Device()) {
    check(int64_t(values.size()) == shape.numel(), "tensor: {} values do not fill shape {}",
          values.size(), shape);
    Tensor t = empty(shape, dtype_of<T>);
    std::copy(values.begin(), values.end(), t.data<T>());
    return t.to(device);
  }
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape, Device device = Device()) {
    return from(std::span<const T>(values), shape, device);
  }
  template <class T>
  static Tensor from(std::initializer_list<T> values, const Shape& shape,
                     Device device = Device()) {
    return from(std::span<const T>(values.begin(), values.size()), shape, device);
  }
  // Wraps memory that `owner` keeps alive, such as a mapped file; `data` is aligned to the dtype.
  static Tensor borrow(void* data, const Shape& shape, DType dtype, std::shared_ptr<void> owner);

  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const;
  // Distance in elements between neighbours along each dimension.
  const Shape& strides() const;
  // Extent along a dimension, counted from either end.
  int64_t size(int64_t dim) const;
  int rank() const { return shape().rank(); }
  int64_t numel() const { return shape().numel(); }
  int64_t bytes() const { return numel() * size_of(dtype()); }
  DType dtype() const;
  Device device() const;
  bool is_contiguous() const;

  // Address of the first element on its device; T must be the dtype's type. Contiguous tensors only
  // may be indexed past it.
  template <class T>
  T* data() const {
    check(dtype() == dtype_of<T>, "data: the tensor holds {}, asked for {}", name_of(dtype()),
          name_of(dtype_of<T>));
    return static_cast<T*>(raw());
  }
  void* raw() const;
  // Elements of a contiguous tensor on the CPU, in order.
  template <class T>
  std::span<T> values() const {
    check(device().is_cpu(), "values: the tensor is on {}; copy it with to(Device::cpu())",
          device());
    check(is_contiguous(), "values: a tensor of shape {} and strides {} is not contiguous", shape(),
          strides());
    return {data<T>(), size_t(numel())};
  }
  // Elements in order, converted, whatever the dtype, the strides and the device.
  template <class T>
  std::vector<T> to_vector() const;
  // The one element, as double; waits for a device's work.
  double item() const;

  // This tensor if contiguous, else a contiguous copy without history.
  Tensor contiguous() const;
  // A contiguous copy without history.
  Tensor clone() const;
  // This tensor if it is there, else a contiguous copy on another device, without history.
  Tensor to(Device device) const;
  // The same memory without history.
  Tensor detach() const;
  // The same memory seen with other shape, strides and offset from its first element (elements).
  Tensor view(const Shape& shape, const Shape& strides, int64_t offset = 0) const;

  // Number of in-place writes to this memory; a backward that saved an older one refuses to run.
  // bump_version() is called by whoever writes through data().
  int64_t version() const;
  void bump_version() const;
  // Counts this tensor's storage under another category.
  void count_as(memory::Category category) const;
  // Do both share memory (and lie in it at the same place)?
  bool is_same(const Tensor& other) const { return impl_ == other.impl_; }
  const void* storage_id() const;
  // Is this handle the only user of its memory, and does it use all of it?
  bool owns_alone() const;

  // --- autograd (defined in autograd/tensor.cpp) ---
  // In-place writes, refused while a graph is recorded and this tensor is part of it.
  void fill_(double value);
  void copy_(const Tensor& source);  // same shape; converts the dtype
  bool requires_grad() const;
  // Asks for a gradient; leaves only, floating dtypes only.
  Tensor& set_requires_grad(bool on = true);
  // Accumulated gradient; undefined until a backward reaches this tensor.
  Tensor grad() const;
  void set_grad(Tensor grad);
  bool is_leaf() const;
  // Keeps the gradient of a tensor that is not a leaf.
  void retain_grad();
  // Adds d(this)/d(leaf) to each leaf's grad(). `dy` may be left out for a scalar. The graph is
  // freed on the way unless retain_graph.
  void backward(const Tensor& dy = Tensor(), bool retain_graph = false) const;

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  explicit Tensor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const Impl& checked(std::string_view what) const;

  std::shared_ptr<Impl> impl_;
};

// A tensor with its full name, as in a model's parameter list or a state dict.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};
using NamedTensors = std::vector<NamedTensor>;

// The three below know nothing of gradients: they are what the differentiable operations are made
// of.

// A tensor of another dtype, or the same one where it has that dtype already.
Tensor convert(const Tensor& x, DType dtype);
// Writes one value, or the elements of a tensor of the same shape and any dtype, whatever the
// strides and the devices.
void fill(const Tensor& destination, double value);
void copy(const Tensor& destination, const Tensor& source);

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor dense = convert(contiguous(), dtype_of<T>).to(Device::cpu());
  const std::span<T> elements = dense.values<T>();
  return std::vector<T>(elements.begin(), elements.end());
}

}  // namespace minim
