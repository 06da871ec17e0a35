#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "tests/cuda_emulator/clock.h"
#include "tests/cuda_emulator/pinned_memory.h"

// Work on streams: what waits for what, when it is run, and its capture into graphs.
namespace minim::emulator {

// What a stream is given to do.
struct Task {
  std::function<void()> run;
  std::vector<PinnedUse> pinned = {};
  bool device = true;  // may touch device memory
};

// A captured graph: tasks, each after some before it. A branch is a stream that took part.
struct Node {
  Task task;
  std::vector<size_t> after;
  size_t branch = 0;
};
struct Graph {
  std::vector<Node> nodes;
};

struct Stream;
struct Capture {
  Graph graph;
  Stream* origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::vector<Stream*> members;
  cudaError_t broken = cudaSuccess;  // why the graph cannot be made
  std::string why;
};

struct Stream {
  uint32_t lane = 0;
  bool blocking = true;  // waits for the legacy stream, and it for this one
  Clock after;           // of all work given so far
  std::shared_ptr<Capture> capture;
  std::vector<size_t> tail;  // nodes that the next one comes after
};

struct Event {
  bool timed = true;
  bool recorded = false;
  Clock after;
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
  std::shared_ptr<Capture> capture;
  std::vector<size_t> tail;
};

// A graph that can be launched; each branch has a lane.
struct Executable {
  Graph graph;
  std::vector<uint32_t> lanes;
  Clock after;  // of its last launch, which the next one waits for
};

// Every call of the runtime holds it.
std::recursive_mutex& runtime_mutex();

// The stream of a handle; nullptr if there is none. cudaStreamPerThread is the legacy stream.
Stream* find_stream(cudaStream_t handle);
Stream* create_stream(bool blocking);
void destroy_stream(Stream* stream);
const std::vector<std::unique_ptr<Stream>>& streams();

// Gives a task to a stream, and runs it at once unless work is deferred; or adds it to the graph
// that the stream is captured into.
cudaError_t submit(cudaStream_t stream, Task task);
// Gives a graph's tasks to a stream.
void submit_graph(Executable& executable, Stream& stream);
uint32_t new_lane();

// What must have run before work that is given to the stream now.
Clock before_next(const Stream& stream);
// Runs all work that the clock covers, and lets the host know of it.
void wait_for(const Clock& clock);
void wait_for_all();
bool is_finished(const Clock& clock);

// Fails a call that may not be made while a stream is captured, and breaks its graph.
cudaError_t refuse_while_capturing(const char* call);
cudaError_t break_capture(Capture& capture, cudaError_t error, std::string why);

void reset_work();

}  // namespace minim::emulator
