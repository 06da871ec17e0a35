#include "tests/cuda_emulator/work.h"

#include <algorithm>
#include <deque>

#include <fmt/format.h>

#include "tests/cuda_emulator/checker.h"
#include "tests/cuda_emulator/device_memory.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/findings.h"

namespace minim::emulator {

namespace {

struct Work {
  Ticket ticket;
  Clock after;
  Task task;
};

struct Lane {
  uint64_t submitted = 0, finished = 0;
  std::deque<Work> queue;
};

struct Queues {
  std::vector<Lane> lanes = std::vector<Lane>(1);
  Stream legacy;
  std::vector<std::unique_ptr<Stream>> streams;
  Clock host;  // what the host has waited for
};

Queues& queues() {
  static Queues instance;
  return instance;
}

void run_until(const Clock& clock);

void run(Work work) {
  run_until(work.after);
  // After a fault nothing on the device runs any more.
  if (context_error() == cudaSuccess) {
    checker::begin_work(work.ticket, work.after);
    for (const PinnedUse& use : work.task.pinned)
      open_pinned(use.address);
    if (work.task.device) {
      const DeviceOpen open;
      work.task.run();
    } else {
      work.task.run();
    }
    for (const PinnedUse& use : work.task.pinned)
      close_pinned(use.address);
  }
  Lane& lane = queues().lanes[work.ticket.lane];
  lane.finished = std::max(lane.finished, work.ticket.index);
}

void run_until(const Clock& clock) {
  for (uint32_t lane = 0; lane < clock.lanes(); ++lane)
    for (;;) {
      std::deque<Work>& queue = queues().lanes[lane].queue;
      if (queue.empty() || queue.front().ticket.index > clock.at(lane)) break;
      Work next = std::move(queue.front());
      queue.pop_front();
      run(std::move(next));
    }
}

// Adds work to a lane; returns the clock of what comes after it.
Clock enqueue(uint32_t lane, Clock after, Task task) {
  Lane& l = queues().lanes[lane];
  const Ticket ticket{lane, ++l.submitted};
  for (const PinnedUse& use : task.pinned)
    start_pinned_use(use, ticket);
  Clock next = after;
  next.add(ticket);
  l.queue.push_back({ticket, std::move(after), std::move(task)});
  if (!options().deferred) run_until(next);
  return next;
}

}  // namespace

std::recursive_mutex& runtime_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

Stream* find_stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy || handle == cudaStreamPerThread)
    return &queues().legacy;
  for (const auto& stream : queues().streams)
    if (reinterpret_cast<cudaStream_t>(stream.get()) == handle) return stream.get();
  return nullptr;
}

uint32_t new_lane() {
  queues().lanes.emplace_back();
  return uint32_t(queues().lanes.size() - 1);
}

Stream* create_stream(bool blocking) {
  auto stream = std::make_unique<Stream>();
  stream->lane = new_lane();
  stream->blocking = blocking;
  queues().streams.push_back(std::move(stream));
  return queues().streams.back().get();
}

void destroy_stream(Stream* stream) {
  run_until(stream->after);  // work that was given is still done
  std::erase_if(queues().streams, [stream](const auto& s) { return s.get() == stream; });
}

const std::vector<std::unique_ptr<Stream>>& streams() {
  return queues().streams;
}

Clock before_next(const Stream& stream) {
  Clock clock = stream.after;
  clock.merge(queues().host);
  if (&stream == &queues().legacy) {
    for (const auto& other : queues().streams)
      if (other->blocking) clock.merge(other->after);
  } else if (stream.blocking) {
    clock.merge(queues().legacy.after);
  }
  return clock;
}

cudaError_t submit(cudaStream_t handle, Task task) {
  if (const cudaError_t error = context_error(); error != cudaSuccess) return error;
  Stream* stream = find_stream(handle);
  if (stream == nullptr)
    return fail_with(cudaErrorInvalidResourceHandle, "the stream does not exist (any more)");
  if (stream->capture) {
    Capture& capture = *stream->capture;
    if (capture.broken != cudaSuccess) return fail_with(capture.broken, capture.why);
    const auto branch = std::find(capture.members.begin(), capture.members.end(), stream);
    capture.graph.nodes.push_back(
        {std::move(task), stream->tail, size_t(branch - capture.members.begin())});
    stream->tail = {capture.graph.nodes.size() - 1};
    return cudaSuccess;
  }
  if (stream == &queues().legacy)
    for (const auto& other : queues().streams)
      if (other->capture && other->blocking)
        return break_capture(*other->capture, cudaErrorStreamCaptureImplicit,
                             "work on the legacy stream would wait for a stream that is captured");
  stream->after = enqueue(stream->lane, before_next(*stream), std::move(task));
  return cudaSuccess;
}

void submit_graph(Executable& executable, Stream& stream) {
  Clock begin = before_next(stream);
  begin.merge(executable.after);
  std::vector<Clock> done;
  Clock all = begin;
  std::vector<Clock> branches(executable.lanes.size(), begin);
  for (const Node& node : executable.graph.nodes) {
    Clock after = branches[node.branch];
    for (const size_t before : node.after)
      after.merge(done[before]);
    done.push_back(enqueue(executable.lanes[node.branch], after, node.task));
    branches[node.branch] = done.back();
    all.merge(done.back());
  }
  executable.after = stream.after = all;
}

void wait_for(const Clock& clock) {
  run_until(clock);
  queues().host.merge(clock);
  finish_pinned_uses(queues().host);
}

void wait_for_all() {
  Clock all = queues().legacy.after;
  for (uint32_t lane = 0; lane < queues().lanes.size(); ++lane)
    all.add({lane, queues().lanes[lane].submitted});
  wait_for(all);
}

bool is_finished(const Clock& clock) {
  for (uint32_t lane = 0; lane < clock.lanes(); ++lane)
    if (queues().lanes[lane].finished < clock.at(lane)) return false;
  return true;
}

cudaError_t break_capture(Capture& capture, cudaError_t error, std::string why) {
  if (capture.broken == cudaSuccess) {
    capture.broken = cudaErrorStreamCaptureInvalidated;
    capture.why = why;
  }
  return fail_with(error, std::move(why));
}

cudaError_t refuse_while_capturing(const char* call) {
  for (const auto& stream : queues().streams)
    if (stream->capture && stream->capture->mode != cudaStreamCaptureModeRelaxed)
      return break_capture(*stream->capture, cudaErrorStreamCaptureUnsupported,
                           fmt::format("{} while a stream is captured", call));
  return cudaSuccess;
}

void reset_work() {
  queues() = Queues();
}

}  // namespace minim::emulator
