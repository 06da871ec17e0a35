#pragma once

#include "core/tensor.h"

// What is behind a Tensor handle. Included by core/ and autograd/ alone.
namespace minim {

// A block of memory with its owner, its category and the count of in-place writes to it.
class Storage {
 public:
  Storage(size_t bytes, memory::Category category, Device device)
      : data_(memory::allocate(bytes, category, device)),
        bytes_(bytes),
        category_(category),
        device_(device) {}
  // On the CPU.
  Storage(void* data, std::shared_ptr<void> owner) : data_(data), owner_(std::move(owner)) {}
  ~Storage() {
    if (!owner_) memory::deallocate(data_, bytes_, category_, device_);
  }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  void* data() const { return data_; }
  Device device() const { return device_; }
  // 0 for borrowed memory.
  size_t bytes() const { return bytes_; }
  void count_as(memory::Category category) {
    if (owner_) return;
    memory::recount(bytes_, category_, category, device_);
    category_ = category;
  }

  int64_t version = 0;

  // The values of memory on a device that came from the host, from its first element on; undefined
  // where they are not known or no longer those.
  Tensor on_host() const { return on_host_version_ == version ? on_host_ : Tensor(); }
  void keep_on_host(Tensor values) {
    on_host_ = std::move(values);
    on_host_version_ = version;
  }

 private:
  void* data_;
  size_t bytes_ = 0;
  memory::Category category_ = memory::Category::data;
  Device device_;
  std::shared_ptr<void> owner_;  // set for borrowed memory, which is not counted
  Tensor on_host_;
  int64_t on_host_version_ = -1;
};

struct Tensor::Impl {
  std::shared_ptr<Storage> storage;
  Shape shape, strides;
  int64_t offset = 0;  // of the first element, in elements
  DType dtype = DType::f32;
  std::shared_ptr<GradMeta> grad;  // null until autograd has something to keep
};

}  // namespace minim
