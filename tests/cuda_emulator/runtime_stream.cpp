#include <algorithm>
#include <memory>
#include <vector>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "tests/cuda_emulator/findings.h"
#include "tests/cuda_emulator/runtime.h"
#include "tests/cuda_emulator/work.h"

// The runtime's calls for streams and events.

using namespace minim::emulator;

namespace {

std::vector<std::unique_ptr<Event>>& events() {
  static std::vector<std::unique_ptr<Event>> all;
  return all;
}

Event* find_event(cudaEvent_t handle) {
  for (const auto& event : events())
    if (reinterpret_cast<cudaEvent_t>(event.get()) == handle) return event.get();
  return nullptr;
}

cudaError_t no_event() {
  return fail_with(cudaErrorInvalidResourceHandle, "the event does not exist (any more)");
}
cudaError_t no_stream() {
  return fail_with(cudaErrorInvalidResourceHandle, "the stream does not exist (any more)");
}

}  // namespace

namespace minim::emulator {

std::vector<std::string> live_streams() {
  std::vector<std::string> lines(streams().size(), "stream");
  lines.resize(lines.size() + events().size(), "event");
  return lines;
}

void reset_events() {
  events().clear();
}

}  // namespace minim::emulator

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  *stream = reinterpret_cast<cudaStream_t>(create_stream((flags & cudaStreamNonBlocking) == 0));
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  const Call call;
  Stream* stream = find_stream(handle);
  if (stream == nullptr || handle == nullptr) return no_stream();
  destroy_stream(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return no_stream();
  if (stream->capture)
    return break_capture(*stream->capture, cudaErrorStreamCaptureUnsupported,
                         "cudaStreamSynchronize of a stream that is captured");
  count_synchronisation();
  wait_for(handle == nullptr ? before_next(*stream) : stream->after);
  return context_error();
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return no_stream();
  if (stream->capture)
    return break_capture(*stream->capture, cudaErrorStreamCaptureUnsupported,
                         "cudaStreamQuery of a stream that is captured");
  const bool finished = is_finished(stream->after);
  wait_for(stream->after);  // deferred work would else never be done for one who only asks
  if (context_error() != cudaSuccess) return context_error();
  return finished ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  if (const cudaError_t error = refuse_while_capturing("cudaDeviceSynchronize");
      error != cudaSuccess)
    return error;
  count_synchronisation();
  wait_for_all();
  return context_error();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  Stream* stream = find_stream(handle);
  const Event* event = find_event(event_handle);
  if (stream == nullptr) return no_stream();
  if (event == nullptr) return no_event();
  if (event->capture) {
    if (stream->capture && stream->capture != event->capture)
      return break_capture(*stream->capture, cudaErrorStreamCaptureMerge,
                           "a captured stream waits for another capture");
    if (!stream->capture) {
      stream->capture = event->capture;
      stream->tail.clear();
      auto& members = event->capture->members;
      if (std::find(members.begin(), members.end(), stream) == members.end())
        members.push_back(stream);
    }
    stream->tail.insert(stream->tail.end(), event->tail.begin(), event->tail.end());
    return cudaSuccess;
  }
  if (stream->capture)
    return break_capture(*stream->capture, cudaErrorStreamCaptureIsolation,
                         "a captured stream waits for an event from outside of the capture");
  stream->after.merge(event->after);
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  const Call call;
  return submit(stream, {[=] { function(data); }, {}, false});
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  events().push_back(std::make_unique<Event>());
  events().back()->timed = (flags & cudaEventDisableTiming) == 0;
  *event = reinterpret_cast<cudaEvent_t>(events().back().get());
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  const Call call;
  Event* event = find_event(handle);
  if (event == nullptr) return no_event();
  std::erase_if(events(), [event](const auto& e) { return e.get() == event; });
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  Event* event = find_event(handle);
  Stream* stream = find_stream(stream_handle);
  if (event == nullptr) return no_event();
  if (stream == nullptr) return no_stream();
  event->capture = stream->capture;
  if (stream->capture) {
    event->tail = stream->tail;
    return cudaSuccess;
  }
  using Clocks = std::chrono::steady_clock;
  auto time = std::make_shared<Clocks::time_point>();
  event->time = time;
  const cudaError_t error = submit(stream_handle, {[time] { *time = Clocks::now(); }, {}, false});
  event->after = stream->after;
  event->recorded = true;
  return error;
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  const Event* event = find_event(handle);
  if (event == nullptr) return no_event();
  if (event->capture)
    return fail_with(cudaErrorCapturedEvent, "the event was recorded in a captured stream");
  count_synchronisation();
  wait_for(event->after);
  return context_error();
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  const Event* event = find_event(handle);
  if (event == nullptr) return no_event();
  if (event->capture)
    return fail_with(cudaErrorCapturedEvent, "the event was recorded in a captured stream");
  const bool finished = is_finished(event->after);
  wait_for(event->after);
  if (context_error() != cudaSuccess) return context_error();
  return finished ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Call call;
  if (call.error() != cudaSuccess) return call.error();
  const Event* first = find_event(begin);
  const Event* last = find_event(end);
  if (first == nullptr || last == nullptr) return no_event();
  if (!first->recorded || !last->recorded || !first->timed || !last->timed)
    return fail_with(cudaErrorInvalidResourceHandle,
                     "an event was not recorded, or made without timing");
  if (!is_finished(first->after) || !is_finished(last->after)) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(*last->time - *first->time).count();
  return cudaSuccess;
}
}
