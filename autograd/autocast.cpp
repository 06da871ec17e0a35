#include "autograd/autocast.h"

#include <mutex>

#include "autograd/graph.h"
#include "autograd/ops.h"

namespace minim {

namespace {

thread_local std::optional<DType> current;

// Threads may share a model.
std::mutex casts;

bool is_half(const Tensor& x) {
  return x.dtype() == DType::f16 || x.dtype() == DType::bf16;
}
bool is_eligible(const Tensor& x) {
  return x.defined() && (is_half(x) || x.dtype() == DType::f32);
}

// A leaf in another dtype, the same memory for all uses until it is written.
Tensor cast_of_leaf(const Tensor& x, DType dtype) {
  const std::lock_guard lock(casts);
  GradMeta& meta = *x.impl()->grad;
  if (!meta.cast.defined() || meta.cast.dtype() != dtype || meta.cast_version != x.version()) {
    meta.cast = Tensor();  // first, so that its memory can be taken again
    const memory::Scope scope(memory::Category::weights);
    meta.cast = convert(x.contiguous(), dtype);
    meta.cast_version = x.version();
  }
  return meta.cast.detach();
}

}  // namespace

Autocast::Autocast(std::optional<DType> dtype) : before_(current) {
  check(!dtype || *dtype == DType::f16 || *dtype == DType::bf16,
        "autocast: the dtype is {}, must be f16 or bf16", name_of(dtype.value_or(DType::f16)));
  current = dtype;
}

Autocast::~Autocast() {
  current = before_;
}

std::optional<DType> autocast_dtype() {
  return current;
}

Tensor to_autocast(const Tensor& x) {
  if (!current || !is_eligible(x) || x.dtype() == *current) return x;
  const bool is_parameter = x.is_leaf() && x.impl()->grad != nullptr;
  if (!is_parameter) return to(x, *current);
  return record("to", cast_of_leaf(x, *current), {x},
                [from = x.dtype()](const Tensor& dy) -> Tensors { return {convert(dy, from)}; });
}

Tensor to_full_precision(const Tensor& x) {
  return current && x.defined() && is_half(x) ? to(x, DType::f32) : x;
}

Tensor to_common_dtype(const Tensor& x, const Tensor& other) {
  if (!current || x.dtype() == other.dtype() || !is_eligible(other)) return x;
  return to_full_precision(x);
}

}  // namespace minim
