#include "core/cuda/index_guard.h"

#include <array>
#include <utility>

#include "core/launch.h"

namespace minim::cuda {

namespace {

constexpr size_t note_bytes = 3 * sizeof(int64_t);

}  // namespace

// One group looks at all indices, so that the first one is noted whatever runs first.
template <class Id>
struct GuardIndices {
  Id* safe;
  int64_t* note;
  const Id* indices;
  int64_t n, extent, number;
  bool ignores;
  int64_t ignored;

  template <class Group>
  HD void operator()(const Group& g, int64_t) const {
    g.each(n, [&](int64_t i) { safe[i] = is_wrong(i) ? Id(0) : indices[i]; });
    // Counted from the end, the first is the largest; 0 where none is wrong.
    const double from_end = g.max(n, [&](int64_t i) { return is_wrong(i) ? double(n - i) : 0.0; });
    if (!g.leader() || !(from_end > 0.0) || note[0] != 0) return;
    const int64_t place = n - int64_t(from_end);
    note[0] = number;
    note[1] = int64_t(indices[place]);
    note[2] = place;
  }

 private:
  HD bool is_wrong(int64_t i) const {
    const auto value = int64_t(indices[i]);
    return (value < 0 || value >= extent) && !(ignores && value == ignored);
  }
};

Tensor IndexGuard::guard(std::string_view op, const Tensor& indices, int64_t extent,
                         std::optional<int64_t> ignored, DescribeIndex describe) {
  const std::lock_guard lock(mutex_);
  if (note_ == nullptr) {
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, note_bytes), "device: memory for checks of indices");
    note_ = static_cast<int64_t*>(memory);
    check_cuda(cudaMemsetAsync(note_, 0, note_bytes, stream_), "device: setting memory");
  }
  const Tensor safe = Tensor::empty_like(indices);
  const int64_t number = ++checks_;
  dispatch_index(indices.dtype(), op, [&]<class Id>() {
    // As one long row, whatever its length: by a block of threads.
    minim::launch_rows(indices.device(), 1, element_grain,
                       GuardIndices<Id>{safe.data<Id>(), note_, indices.data<Id>(), indices.numel(),
                                        extent, number, ignored.has_value(), ignored.value_or(0)});
  });
  open_.emplace(number, std::move(describe));
  return safe;
}

void IndexGuard::report() {
  const std::lock_guard lock(mutex_);
  if (open_.empty()) return;
  std::array<int64_t, 3> note = {};
  static_assert(sizeof(note) == note_bytes);
  check_cuda(cudaMemcpyAsync(note.data(), note_, note_bytes, cudaMemcpyDeviceToHost, stream_),
             "device: a copy from the device");
  check_cuda(cudaStreamSynchronize(stream_), "device: waiting");
  const std::map<int64_t, DescribeIndex> open = std::exchange(open_, {});
  if (note[0] == 0) return;
  check_cuda(cudaMemsetAsync(note_, 0, note_bytes, stream_), "device: setting memory");
  fail("{}; the device found it, and what it has computed since then does not count",
       open.at(note[0])(note[1], note[2]));
}

}  // namespace minim::cuda
