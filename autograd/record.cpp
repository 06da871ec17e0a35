#include <algorithm>
#include <atomic>
#include <cmath>

#include "autograd/enable_grad.h"
#include "autograd/graph.h"

namespace minim {

namespace {

thread_local bool recording = true;
thread_local bool detecting = false;
std::atomic<int64_t> next_sequence = 0;

// Nodes waiting to be destroyed while another one is; a chain of 100,000 would overflow the stack
// if each destroyed the next.
thread_local std::vector<std::shared_ptr<Node>>* released = nullptr;

}  // namespace

GradMeta::~GradMeta() {
  if (!node) return;
  if (released != nullptr) {
    released->push_back(std::move(node));
    return;
  }
  std::vector<std::shared_ptr<Node>> waiting;
  waiting.push_back(std::move(node));
  released = &waiting;
  while (!waiting.empty()) {
    const std::shared_ptr<Node> last = std::move(waiting.back());
    waiting.pop_back();
  }
  released = nullptr;
}

NoGrad::NoGrad() : before_(recording) {
  recording = false;
}

NoGrad::~NoGrad() {
  recording = before_;
}

EnableGrad::EnableGrad() : before_(recording) {
  recording = true;
}

EnableGrad::~EnableGrad() {
  recording = before_;
}

bool grad_enabled() {
  return recording;
}

DetectAnomaly::DetectAnomaly() : before_(detecting) {
  detecting = true;
}

DetectAnomaly::~DetectAnomaly() {
  detecting = before_;
}

bool detecting_anomaly() {
  return detecting;
}

bool all_finite(const Tensor& x) {
  if (!x.defined() || !is_floating(x.dtype())) return true;
  const Tensor dense = x.contiguous().to(Device::cpu());
  return dispatch_float(x.dtype(), "all_finite", [&]<class T>() {
    const auto values = dense.values<T>();
    return std::ranges::all_of(values, [](T v) { return std::isfinite(Compute<T>(v)); });
  });
}

Tensor record(std::string_view op, Tensor value, const Tensors& inputs, Backward backward) {
  if (detecting && std::ranges::all_of(inputs, all_finite))
    check(all_finite(value), "{}: the result of shape {} is not finite, the inputs are", op,
          value.shape());
  const auto wants_grad = [](const Tensor& t) { return t.defined() && t.requires_grad(); };
  if (!recording || std::ranges::none_of(inputs, wants_grad)) return value;

  auto node = std::make_shared<Node>();
  node->op = op;
  node->backward = std::move(backward);
  node->sequence = next_sequence++;
  node->inputs.reserve(inputs.size());
  for (const Tensor& input : inputs) {
    Node::Edge& edge = node->inputs.emplace_back();
    if (!wants_grad(input)) continue;
    edge = {input.impl()->grad, input.shape(), input.dtype(), input.device()};
  }
  // A fresh handle, so that an operation may return one of its inputs.
  Tensor output = value.detach();
  output.impl()->grad = std::make_shared<GradMeta>();
  output.impl()->grad->requires_grad = true;
  output.impl()->grad->node = std::move(node);
  return output;
}

Tensor record_without_backward(std::string_view op, Tensor value, const Tensors& inputs) {
  for (const Tensor& input : inputs)
    check(
        !recording || !input.defined() || !input.requires_grad(),
        "{}: has no backward, but its input of shape {} requires a gradient; call it under NoGrad "
        "or on detach()",
        op, input.shape());
  return value;
}

Saved::Saved(const Tensor& tensor) : version_(0) {
  if (!tensor.defined()) return;
  tensor_ = tensor.detach();
  version_ = tensor.version();
}

const Tensor& Saved::get() const {
  if (tensor_.defined())
    check(tensor_.version() == version_,
          "{}: a tensor saved for the backward was modified in place (version {}, saved at {})",
          running_op(), tensor_.version(), version_);
  return tensor_;
}

}  // namespace minim
