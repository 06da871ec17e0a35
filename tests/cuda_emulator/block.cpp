#include "tests/cuda_emulator/block.h"

#include <algorithm>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "tests/cuda_emulator/block_state.h"
#include "tests/cuda_emulator/checker.h"
#include "tests/cuda_emulator/sanitizer.h"
#include "tests/cuda_emulator/shared_memory.h"

namespace minim::emulator {

// What kernels see as the constants threadIdx and so on (device.h).
uint3 thread_index asm("threadIdx");
uint3 block_index asm("blockIdx");
dim3 block_dimensions asm("blockDim");
dim3 grid_dimensions asm("gridDim");

namespace {

constexpr size_t stack_bytes = sanitizer::active ? 256 << 10 : 64 << 10;

Execution execution;

}  // namespace

Block block;
constinit thread_local const Execution* executing = nullptr;

bool run_grid(const LaunchRequest& request) {
  return block.run(request);
}

bool on_own_stack(const void* address) {
  const Fiber* fiber = block.current();
  return fiber != nullptr && fiber->holds(address);
}

bool on_other_stack(const void* address) {
  const auto& fibers = block.fibers();
  return std::any_of(fibers.begin(), fibers.end(), [address](const auto& fiber) {
    return fiber.get() != block.current() && fiber->holds(address);
  });
}

bool on_stack_guard(const void* address) {
  const auto& fibers = block.fibers();
  return std::any_of(fibers.begin(), fibers.end(),
                     [address](const auto& fiber) { return fiber->guards(address); });
}

std::string describe(const LaunchRequest& r) {
  return fmt::format("{} <<<({}, {}, {}), ({}, {}, {}), {}>>>", function_name(r.kernel), r.grid.x,
                     r.grid.y, r.grid.z, r.block.x, r.block.y, r.block.z, r.shared);
}

void stop_kernel(Problem problem, std::string&& text, std::vector<Place> places) {
  block.give_up({problem, std::move(text)}, std::move(places));
}

std::string_view file_of(const Source& where) {
  const std::string_view file = where.file;
  return file.substr(file.rfind('/') + 1);
}

void trap(Source where) {
  stop_kernel(Problem::trap, fmt::format("__trap() at {}:{}", file_of(where), where.line));
}

int block_barrier(BarrierKind kind, int predicate, Source where) {
  return block.barrier(kind, predicate, where);
}

void Block::set_dimensions(const LaunchRequest& request) {
  const dim3 b = request.block;
  grid_dimensions = request.grid;
  block_dimensions = b;
  schedule_ = options().order;
  count_ = b.x * b.y * b.z;
  threads_.assign(count_, Thread());
  warps_.resize((count_ + 31) / 32);
  order_.resize(count_);
  for (unsigned i = 0; i < count_; ++i)
    threads_[i].index = uint3{i % b.x, i / b.x % b.y, i / b.x / b.y};
  std::iota(order_.begin(), order_.end(), 0u);
  if (schedule_ == Order::reverse) std::reverse(order_.begin(), order_.end());
}

bool Block::run(const LaunchRequest& request) {
  request_ = &request;
  set_dimensions(request);
  host_.adopt_host_stack();
  random_.seed(options().seed);
  execution = {&request, 0, 0};
  checker::begin_launch(request, count_);

  const dim3 g = request.grid;
  const uint64_t blocks = uint64_t(g.x) * g.y * g.z;
  std::vector<uint64_t> shuffled;
  if (schedule_ == Order::random && blocks < size_t(1) << 20) {
    shuffled.resize(blocks);
    std::iota(shuffled.begin(), shuffled.end(), uint64_t(0));
    std::shuffle(shuffled.begin(), shuffled.end(), random_);
  }
  for (uint64_t n = 0; n < blocks && !finding_; ++n) {
    uint64_t k = schedule_ == Order::reverse ? blocks - 1 - n : n;
    if (!shuffled.empty()) k = shuffled[n];
    block_index = uint3{unsigned(k % g.x), unsigned(k / g.x % g.y), unsigned(k / g.x / g.y)};
    execution.first_thread = uint32_t(k * count_);
    begin_shared_block();
    checker::begin_block(execution.first_thread);
    run_block();
  }
  end_shared_launch();
  checker::end_launch();
  ++statistics_.launches;
  if (!finding_) return true;

  for (const auto& fiber : fibers_)
    fiber->restart();
  idle_.clear();
  for (const auto& fiber : fibers_)
    idle_.push_back(fiber.get());
  const Finding finding = std::move(*finding_);
  finding_.reset();
  const cudaError_t error = device_error(finding.problem);
  if (error != cudaSuccess) corrupt_context(error);
  const uint3 b = block_index;
  const uint3 t = threads_[execution.thread].index;
  report(finding.problem,
         fmt::format("{}\n  in {}, block ({}, {}, {}), thread ({}, {}, {})", finding.text,
                     describe(request), b.x, b.y, b.z, t.x, t.y, t.z),
         places_);
  return false;
}

void Block::run_block() {
  if (schedule_ == Order::random) std::shuffle(order_.begin(), order_.end(), random_);
  for (Thread& t : threads_)
    t.state = State::waiting_to_start;
  for (Warp& w : warps_)
    w = Warp();
  if (count_ % 32 != 0) warps_.back().done = ~0u << count_ % 32;
  next_ = at_barrier_ = at_warp_ = 0;
  live_ = count_;
  ready_.clear();
  ready_head_ = 0;
  executing = &execution;
  switch_to(pick());
  executing = nullptr;
  ++statistics_.blocks;
  statistics_.threads += count_;
}

void Block::give_up(Finding&& finding, std::vector<Place>&& places) {
  finding_.emplace(std::move(finding));
  places_ = std::move(places);
  switch_to(&host_);
  std::abort();  // nobody comes back to a launch that was given up
}

void Block::switch_to(Fiber* next) {
  Fiber* from = current_ == nullptr ? &host_ : current_;
  if (from == next) return;
  ++statistics_.switches;
  current_ = next == &host_ ? nullptr : next;
  if (current_ != nullptr) {
    execution.thread = next->thread;
    thread_index = threads_[next->thread].index;
  }
  Fiber::switch_to(*from, *next);
}

void Block::fiber_main() {
  Fiber::entered();
  for (;;) {
    Fiber* self = block.current_;
    block.run_threads(self);
    block.idle_.push_back(self);
    block.switch_to(block.pick());
  }
}

// Threads are started on the same fiber one after the other, until one waits for others: the next
// are then started on another. Kernels without barriers never switch.
void Block::run_threads(Fiber* self) {
  const LaunchRequest& request = *request_;
  while (next_ < count_) {
    const unsigned i = order_[next_++];
    Thread& t = threads_[i];
    t.state = State::running;
    t.fiber = self;
    self->thread = execution.thread = i;
    thread_index = t.index;
    request.body(request.arguments.get());
    t.state = State::done;
    --live_;
    warps_[i / 32].done |= 1u << i % 32;
    if (at_warp_ > 0 && warps_[i / 32].waiting != 0)
      for (unsigned lane = 0; lane < 32; ++lane)
        if ((warps_[i / 32].waiting >> lane & 1) != 0) try_warp(i / 32, lane);
    if (at_barrier_ > 0 && at_barrier_ == live_) release_barrier();
    // Threads that may go on do so before others are started.
    if (ready_.size() > ready_head_) return;
  }
}

Fiber* Block::idle_fiber() {
  if (idle_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(stack_bytes, unsigned(fibers_.size()), fiber_main));
    return fibers_.back().get();
  }
  Fiber* fiber = idle_.back();
  idle_.pop_back();
  return fiber;
}

Fiber* Block::pick() {
  if (const size_t waiting = ready_.size() - ready_head_; waiting > 0) {
    if (schedule_ == Order::random)
      std::swap(ready_[ready_head_], ready_[ready_head_ + random_() % waiting]);
    const unsigned i = ready_[ready_head_++];
    if (ready_head_ == ready_.size()) {
      ready_.clear();
      ready_head_ = 0;
    }
    threads_[i].state = State::running;
    return threads_[i].fiber;
  }
  if (next_ < count_) {
    Fiber* fiber = idle_fiber();
    fiber->thread = order_[next_];
    return fiber;
  }
  if (live_ == 0) return &host_;
  if (at_warp_ > 0)
    stop_kernel(
        Problem::warp_mask,
        "lanes wait at a warp operation for lanes that do something else:" + describe_waiters());
  stop_kernel(Problem::divergent_barrier, "no thread can go on:" + describe_waiters());
}

void Block::make_ready(unsigned i) {
  threads_[i].state = State::ready;
  ready_.push_back(i);
}

int Block::barrier(BarrierKind kind, int predicate, Source where) {
  Thread& t = threads_[current_->thread];
  t.state = State::at_barrier;
  t.barrier = kind;
  t.predicate = predicate;
  t.where = where;
  if (++at_barrier_ == live_) release_barrier();
  wait();
  return t.predicate;
}

void Block::release_barrier() {
  if (live_ != count_)
    stop_kernel(Problem::divergent_barrier,
                "threads returned before a barrier that others wait at:" + describe_waiters());
  const Thread& first = threads_[0];
  int count = 0;
  for (const Thread& t : threads_) {
    if (t.where.line != first.where.line || t.barrier != first.barrier)
      stop_kernel(Problem::divergent_barrier,
                  "the threads of a block wait at different barriers:" + describe_waiters());
    count += t.predicate != 0;
  }
  const int result = first.barrier == BarrierKind::count ? count
                     : first.barrier == BarrierKind::all ? int(count == int(count_))
                                                         : int(count > 0);
  at_barrier_ = 0;
  for (const unsigned i : order_) {
    threads_[i].predicate = result;
    make_ready(i);
  }
  checker::block_synced();
}

std::string Block::describe_waiters() const {
  std::map<std::string, std::vector<unsigned>> groups;
  for (unsigned i = 0; i < count_; ++i) {
    const Thread& t = threads_[i];
    const auto place = fmt::format("{}:{}", file_of(t.where), t.where.line);
    if (t.state == State::at_barrier) groups["wait at a barrier, " + place].push_back(i);
    if (t.state == State::at_warp_operation)
      groups[fmt::format("wait at a warp operation with mask {:#010x}, {}", t.mask, place)]
          .push_back(i);
    if (t.state == State::done) groups["have returned"].push_back(i);
  }
  std::string all;
  for (const auto& [what, who] : groups)
    all += fmt::format("\n  {} threads (the first is {}) {}", who.size(), who[0], what);
  return all;
}

}  // namespace minim::emulator
