#include <algorithm>
#include <memory>
#include <vector>

#include <cuda_runtime_api.h>

#include "tests/cuda_emulator/runtime.h"

// The runtime's calls for the capture of streams, and for graphs.

using namespace minim::emulator;

namespace {

std::vector<std::unique_ptr<Graph>>& graphs() {
  static std::vector<std::unique_ptr<Graph>> all;
  return all;
}
std::vector<std::unique_ptr<Executable>>& executables() {
  static std::vector<std::unique_ptr<Executable>> all;
  return all;
}

template <class T, class Handle>
T* find(const std::vector<std::unique_ptr<T>>& all, Handle handle) {
  for (const auto& one : all)
    if (reinterpret_cast<Handle>(one.get()) == handle) return one.get();
  return nullptr;
}

cudaError_t no_graph() {
  return fail_with(cudaErrorInvalidValue, "the graph does not exist (any more)");
}

int failing = 0;  // of the calls to come

// Is every node one that the last node of the stream comes after?
bool all_joined(const Capture& capture, const std::vector<size_t>& tail) {
  std::vector<bool> joined(capture.graph.nodes.size());
  for (const size_t node : tail)
    joined[node] = true;
  for (size_t i = joined.size(); i-- > 0;)
    if (joined[i])
      for (const size_t before : capture.graph.nodes[i].after)
        joined[before] = true;
  return std::find(joined.begin(), joined.end(), false) == joined.end();
}

}  // namespace

namespace minim::emulator {

std::vector<std::string> live_graphs() {
  std::vector<std::string> lines(graphs().size(), "graph");
  lines.resize(lines.size() + executables().size(), "executable graph");
  return lines;
}

void fail_graphs(int calls) {
  failing = calls;
}

void reset_graphs() {
  graphs().clear();
  executables().clear();
}

}  // namespace minim::emulator

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  Stream* stream = find_stream(handle);
  if (stream == nullptr)
    return fail_with(cudaErrorInvalidResourceHandle, "the stream does not exist (any more)");
  if (handle == nullptr || handle == cudaStreamLegacy)
    return fail_with(cudaErrorStreamCaptureUnsupported, "the legacy stream cannot be captured");
  if (stream->capture) return fail_with(cudaErrorIllegalState, "the stream is captured already");
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->mode = mode;
  stream->capture->members = {stream};
  stream->tail.clear();
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const Call call;
  *graph = nullptr;
  Stream* stream = find_stream(handle);
  if (stream == nullptr || !stream->capture)
    return fail_with(cudaErrorIllegalState, "the stream is not captured");
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream)
    return fail_with(cudaErrorStreamCaptureUnmatched, "the capture began on another stream");
  const bool joined = all_joined(*capture, stream->tail);
  for (Stream* member : capture->members) {
    member->capture.reset();
    member->tail.clear();
  }
  if (call.error() != cudaSuccess) return call.error();
  if (capture->broken != cudaSuccess) return fail_with(capture->broken, capture->why);
  if (!joined)
    return fail_with(cudaErrorStreamCaptureUnjoined,
                     "work of another captured stream is not waited for by the first");
  graphs().push_back(std::make_unique<Graph>(std::move(capture->graph)));
  *graph = reinterpret_cast<cudaGraph_t>(graphs().back().get());
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const Call call;
  const Stream* stream = find_stream(handle);
  if (stream == nullptr)
    return fail_with(cudaErrorInvalidResourceHandle, "the stream does not exist (any more)");
  *status = !stream->capture                         ? cudaStreamCaptureStatusNone
            : stream->capture->broken == cudaSuccess ? cudaStreamCaptureStatusActive
                                                     : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* count) {
  const Call call;
  const Graph* graph = find(graphs(), handle);
  if (graph == nullptr) return no_graph();
  if (nodes != nullptr)
    return fail_with(cudaErrorNotSupported, "the emulator counts nodes and gives no handles");
  *count = graph->nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t handle,
                                 unsigned long long) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  const Graph* graph = find(graphs(), handle);
  if (graph == nullptr) return no_graph();
  if (failing > 0) {
    --failing;
    return fail_with(cudaErrorMemoryAllocation, "the call was told to fail");
  }
  auto made = std::make_unique<Executable>();
  made->graph = *graph;
  size_t branches = 0;
  for (const Node& node : graph->nodes)
    branches = std::max(branches, node.branch + 1);
  for (size_t i = 0; i < branches; ++i)
    made->lanes.push_back(new_lane());
  executables().push_back(std::move(made));
  *executable = reinterpret_cast<cudaGraphExec_t>(executables().back().get());
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t executable, cudaStream_t) {
  const Call call;
  return find(executables(), executable) == nullptr ? no_graph() : call.error();
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  Executable* executable = find(executables(), handle);
  Stream* stream = find_stream(stream_handle);
  if (executable == nullptr) return no_graph();
  if (stream == nullptr)
    return fail_with(cudaErrorInvalidResourceHandle, "the stream does not exist (any more)");
  if (stream->capture)
    return break_capture(*stream->capture, cudaErrorStreamCaptureUnsupported,
                         "the emulator has no graphs inside graphs");
  submit_graph(*executable, *stream);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  const Call call;
  Executable* executable = find(executables(), handle);
  if (executable == nullptr) return no_graph();
  std::erase_if(executables(), [=](const auto& e) { return e.get() == executable; });
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  const Call call;
  Graph* graph = find(graphs(), handle);
  if (graph == nullptr) return no_graph();
  std::erase_if(graphs(), [=](const auto& g) { return g.get() == graph; });
  return cudaSuccess;
}
}
