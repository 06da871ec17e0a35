#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "core/device.h"

struct CUgraphExec_st;

namespace minim::cuda {

// Work of a device's stream that was recorded once and is launched as one. What is in it are
// addresses: whoever makes one keeps the memory (memory::Segment), and writes numbers that change
// where the work reads them (Recording).
class Graph {
 public:
  // Records what `work` asks of the device; none of it is done. Throws Error "graph: .." where the
  // work cannot be recorded, and what `work` throws.
  Graph(Device device, const std::function<void()>& work);
  // When destroyed it waits for nothing: a launch that is still running ends first.
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Does the work, after all that was asked of the device before.
  void launch() const;
  // Kernels, copies and fills in it.
  size_t nodes() const { return nodes_; }

 private:
  Device device_;
  std::shared_ptr<CUgraphExec_st> executable_;
  size_t nodes_ = 0;
};

// Copies within a device.
void copy_within(Device device, void* to, const void* from, size_t bytes);

}  // namespace minim::cuda
