#pragma once

#include <memory>
#include <string>
#include <vector>

#include "autograd/node.h"
#include "core/tensor_impl.h"

// What autograd keeps behind a Tensor; private to autograd/.
namespace minim {

// One recorded operation.
struct Node {
  // An input: where its gradient goes, and what that gradient must look like. The input's memory is
  // not held here; whatever the backward needs of it, the closure saves.
  struct Edge {
    std::shared_ptr<GradMeta> to;  // null where no gradient is wanted
    Shape shape;
    DType dtype = DType::f32;
    Device device;
  };

  std::string op;
  std::vector<Edge> inputs;
  Backward backward;
  // Inputs are recorded before outputs, so descending numbers are a backward order.
  int64_t sequence = 0;
  bool freed = false;
};

struct GradMeta {
  GradMeta() = default;
  ~GradMeta();
  GradMeta(const GradMeta&) = delete;
  GradMeta& operator=(const GradMeta&) = delete;

  bool requires_grad = false;
  bool retain_grad = false;
  Tensor grad;
  std::shared_ptr<Node> node;  // null for a leaf
  // A leaf's values in the dtype of an Autocast, and their version; undefined before the first.
  Tensor cast;
  int64_t cast_version = 0;
};

// The gradient of a leaf (or of a tensor that retains it) plus one more contribution.
void accumulate_grad(GradMeta& meta, Tensor dx);

// Whether a DetectAnomaly lives on this thread.
bool detecting_anomaly();

// Name of the operation whose backward this thread is running; "backward" outside of one.
std::string_view running_op();

}  // namespace minim
