#include "core/cuda/graph.h"

#include <memory>

#include "core/cuda/device.h"
#include "core/cuda/launch.h"

namespace minim::cuda {

namespace {

struct DestroyGraph {
  void operator()(cudaGraph_t graph) const { cudaGraphDestroy(graph); }
};
using OwnedGraph = std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, DestroyGraph>;

OwnedGraph end_capture(cudaStream_t queue, cudaError_t& error) {
  cudaGraph_t made = nullptr;
  error = cudaStreamEndCapture(queue, &made);
  if (error != cudaSuccess) cudaGetLastError();  // so that nobody else is blamed for it
  return OwnedGraph(made);
}

}  // namespace

Graph::Graph(Device device, const std::function<void()>& work) : device_(device) {
  const cudaStream_t queue = stream(device);
  // Memory may be asked of the device meanwhile: that is no work of the stream.
  check_cuda(cudaStreamBeginCapture(queue, cudaStreamCaptureModeRelaxed), "graph: recording");
  cudaError_t error = cudaSuccess;
  try {
    work();
  } catch (...) {
    end_capture(queue, error);
    throw;
  }
  const OwnedGraph graph = end_capture(queue, error);
  check_cuda(error, "graph: the work cannot be recorded");
  check_cuda(cudaGraphGetNodes(graph.get(), nullptr, &nodes_), "graph: counting");
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaGraphInstantiate(&executable, graph.get(), 0), "graph: the work cannot be kept");
  executable_.reset(executable, cudaGraphExecDestroy);
}

void Graph::launch() const {
  check_cuda(cudaGraphLaunch(executable_.get(), stream(device_)), "graph: a launch");
}

void copy_within(Device device, void* to, const void* from, size_t bytes) {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream(device)),
             "device: a copy within it");
}

}  // namespace minim::cuda
