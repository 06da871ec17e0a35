#include <map>

#include "autograd/autocast.h"
#include "autograd/graph.h"
#include "autograd/ops.h"

namespace minim {

namespace {

thread_local std::string_view running = "backward";

// Sets the name that messages from inside a backward carry.
class Running {
 public:
  explicit Running(std::string_view op) : before_(running) { running = op; }
  ~Running() { running = before_; }

 private:
  std::string_view before_;
};

// A gradient on its way to a node. Its memory may be added to in place once nobody else sees it.
struct Pending {
  std::shared_ptr<GradMeta> meta;
  Tensor dy;
  bool ours = false;

  void add(Tensor dx) {
    if (!dy.defined()) {
      ours = dx.owns_alone() && dx.is_contiguous();
      dy = std::move(dx);
    } else if (ours) {
      add_into(dy, dx);
    } else {
      dy = minim::add(dy, dx);
      ours = true;
    }
  }
};

Tensors run(const Node& node, const Tensor& dy) {
  const Running scope(node.op);
  Tensors dx = node.backward(dy);
  check(dx.size() == node.inputs.size(), "{}: backward returned {} gradients for {} inputs",
        node.op, dx.size(), node.inputs.size());
  for (size_t i = 0; i < dx.size(); ++i) {
    const Node::Edge& input = node.inputs[i];
    if (!input.to || !dx[i].defined()) continue;
    check(dx[i].shape() == input.shape && dx[i].dtype() == input.dtype,
          "{}: the gradient of input {} is {} {}, the input is {} {}", node.op, i,
          name_of(dx[i].dtype()), dx[i].shape(), name_of(input.dtype), input.shape);
    check(dx[i].device() == input.device, "{}: the gradient of input {} is on {}, the input on {}",
          node.op, i, dx[i].device(), input.device);
    if (detecting_anomaly() && all_finite(dy))
      check(all_finite(dx[i]), "{}: the gradient of input {} of shape {} is not finite, dy is",
            node.op, i, input.shape);
  }
  return dx;
}

}  // namespace

std::string_view running_op() {
  return running;
}

void accumulate_grad(GradMeta& meta, Tensor dx) {
  if (meta.grad.defined()) {
    add_into(meta.grad, dx);
    return;
  }
  if (dx.owns_alone() && dx.is_contiguous()) {
    meta.grad = std::move(dx);
    meta.grad.count_as(memory::Category::gradients);
  } else {
    const memory::Scope scope(memory::Category::gradients);
    meta.grad = dx.clone();
  }
}

void Tensor::backward(const Tensor& dy, bool retain_graph) const {
  check(requires_grad(), "backward: no tensor that this one was computed from requires a gradient");
  check(dy.defined() || numel() == 1,
        "backward: a tensor of shape {} is not a scalar; pass the gradient of the loss by it",
        shape());
  Tensor start = dy.defined() ? dy.detach() : new_full(shape(), 1.0, dtype());
  check(start.shape() == shape() && start.dtype() == dtype(),
        "backward: the gradient is {} {}, the tensor is {} {}", name_of(start.dtype()),
        start.shape(), name_of(dtype()), shape());
  check(start.device() == device(), "backward: the gradient is on {}, the tensor on {}",
        start.device(), device());

  const NoGrad no_grad;
  const Autocast as_recorded(std::nullopt);
  std::map<int64_t, Pending, std::greater<>> waiting;
  const auto deliver = [&](const std::shared_ptr<GradMeta>& to, Tensor dx) {
    if (to->retain_grad && to->node) accumulate_grad(*to, dx.clone());
    if (to->node) {
      Pending& pending = waiting[to->node->sequence];
      pending.meta = to;
      pending.add(std::move(dx));
    } else {
      accumulate_grad(*to, std::move(dx));
    }
  };
  deliver(impl_->grad, std::move(start));
  while (!waiting.empty()) {
    Pending pending = std::move(waiting.begin()->second);
    waiting.erase(waiting.begin());
    Node& node = *pending.meta->node;
    check(
        !node.freed,
        "{}: this part of the graph was freed by an earlier backward; pass retain_graph = true to "
        "that one",
        node.op);
    Tensors dx = run(node, pending.dy);
    pending.dy = Tensor();
    const std::vector<Node::Edge> inputs = retain_graph ? node.inputs : std::move(node.inputs);
    if (!retain_graph) {
      node.freed = true;
      node.backward = nullptr;
      node.inputs.clear();
    }
    for (size_t i = 0; i < dx.size(); ++i)
      if (inputs[i].to && dx[i].defined()) deliver(inputs[i].to, std::move(dx[i]));
  }
}

}  // namespace minim
