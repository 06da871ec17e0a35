#pragma once

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda_emulator/block.h"
#include "tests/cuda_emulator/emulator.h"
#include "tests/cuda_emulator/fiber.h"

// The block that runs, shared by block.cpp (barriers, scheduling) and warp.cpp.
namespace minim::emulator {

// Of a thread: what it is doing.
enum class State : uint8_t {
  waiting_to_start,
  ready,
  running,
  at_barrier,
  at_warp_operation,
  done
};

struct Thread {
  State state = State::waiting_to_start;
  BarrierKind barrier = BarrierKind::plain;
  WarpKind operation = WarpKind::barrier;
  int width = 0;
  int predicate = 0;  // given to a barrier; afterwards its result
  unsigned mask = 0, argument = 0;
  uint64_t value = 0;  // given to a warp operation; afterwards its result
  Source where;
  Fiber* fiber = nullptr;
  uint3 index{};
};

struct Warp {
  unsigned waiting = 0;  // lanes at a warp operation
  unsigned done = 0;     // lanes that have returned, or never were
};

class Block {
 public:
  // Runs a grid; false if it was given up.
  bool run(const LaunchRequest& request);
  [[noreturn]] void give_up(Finding&& finding, std::vector<Place>&& places);

  int barrier(BarrierKind kind, int predicate, Source where);
  uint64_t warp_operation(WarpKind kind, unsigned mask, uint64_t value, unsigned argument,
                          int width, Source where);
  unsigned active_lanes() const;

  const Fiber* current() const { return current_; }
  const std::vector<std::unique_ptr<Fiber>>& fibers() const { return fibers_; }
  const Statistics& statistics() const { return statistics_; }
  void reset_statistics() { statistics_ = Statistics(); }

 private:
  static void fiber_main();
  void run_block();
  void run_threads(Fiber* self);
  Fiber* pick();
  Fiber* idle_fiber();
  void switch_to(Fiber* next);
  void wait() { switch_to(pick()); }
  void make_ready(unsigned thread);
  void release_barrier();
  void try_warp(unsigned warp, unsigned lane);
  void complete_warp(unsigned warp, unsigned lanes);
  std::string describe_waiters() const;
  void set_dimensions(const LaunchRequest& request);

  const LaunchRequest* request_ = nullptr;
  Order schedule_ = Order::forward;
  unsigned count_ = 0, next_ = 0, live_ = 0, at_barrier_ = 0, at_warp_ = 0;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<unsigned> order_;  // in which threads are started
  std::vector<unsigned> ready_;  // a queue, from ready_head_ on
  size_t ready_head_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> idle_;
  Fiber host_;
  Fiber* current_ = nullptr;
  std::mt19937 random_;
  std::optional<Finding> finding_;  // why the launch was given up
  std::vector<Place> places_;
  Statistics statistics_;
};

extern Block block;

}  // namespace minim::emulator
