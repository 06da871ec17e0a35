#include <fmt/format.h>

#include "tests/cuda_emulator/block_state.h"
#include "tests/cuda_emulator/checker.h"

// Operations of a warp: they complete when all lanes of the mask that have not returned are there.
namespace minim::emulator {

namespace {

// The lane that a shuffle reads; its own where that would lie outside of its part of the warp.
int source_lane(const Thread& t, int lane) {
  const int first = lane & ~(t.width - 1);
  const auto argument = int(t.argument);
  int from = lane;
  switch (t.operation) {
    case WarpKind::index:
      return first | (argument & (t.width - 1));
    case WarpKind::up:
      from = argument > 32 ? -1 : lane - argument;
      break;
    case WarpKind::down:
      from = argument > 32 || argument < 0 ? 64 : lane + argument;
      break;
    default:
      // Earlier parts of the warp can be read, later ones not.
      from = lane ^ (argument & 31);
      return from >= first + t.width ? lane : from;
  }
  return from < first || from >= first + t.width ? lane : from;
}

template <class T>
T combine(Reduction how, T a, T b) {
  switch (how) {
    case Reduction::sum:
      return T(unsigned(a) + unsigned(b));
    case Reduction::smallest:
      return a < b ? a : b;
    case Reduction::largest:
      return a > b ? a : b;
    case Reduction::bits_and:
      return a & b;
    case Reduction::bits_or:
      return a | b;
    default:
      return a ^ b;
  }
}

}  // namespace

uint64_t warp_operation(WarpKind kind, unsigned mask, uint64_t value, unsigned argument, int width,
                        Source where) {
  return block.warp_operation(kind, mask, value, argument, width, where);
}

unsigned active_lanes() {
  return block.active_lanes();
}

unsigned Block::active_lanes() const {
  return ~warps_[current_->thread / 32].done;
}

uint64_t Block::warp_operation(WarpKind kind, unsigned mask, uint64_t value, unsigned argument,
                               int width, Source where) {
  const unsigned i = current_->thread;
  Thread& t = threads_[i];
  t.operation = kind;
  t.mask = mask;
  t.value = value;
  t.argument = argument;
  t.width = width;
  t.where = where;
  if ((mask >> i % 32 & 1) == 0)
    stop_kernel(Problem::warp_mask,
                fmt::format("lane {} is not in the mask {:#010x} that it gives, {}:{}", i % 32,
                            mask, file_of(where), where.line));
  if (width < 1 || width > 32 || (width & (width - 1)) != 0)
    stop_kernel(Problem::warp_mask,
                fmt::format("a shuffle's width is {}, which is no power of two up to 32, {}:{}",
                            width, file_of(where), where.line));
  t.state = State::at_warp_operation;
  ++at_warp_;
  warps_[i / 32].waiting |= 1u << i % 32;
  try_warp(i / 32, i % 32);
  wait();
  return t.value;
}

void Block::try_warp(unsigned w, unsigned lane) {
  const Warp& warp = warps_[w];
  const Thread* lanes = &threads_[size_t(w) * 32];
  const Thread& me = lanes[lane];
  const unsigned need = me.mask & ~warp.done;
  if ((warp.waiting & need) != need) return;
  for (unsigned rest = need; rest != 0; rest &= rest - 1) {
    const auto l = unsigned(std::countr_zero(rest));
    const Thread& t = lanes[l];
    if (t.mask != me.mask || t.operation != me.operation || t.width != me.width ||
        t.where.line != me.where.line)
      stop_kernel(
          Problem::warp_mask,
          fmt::format("lanes {} (mask {:#010x}, {}:{}) and {} (mask {:#010x}, {}:{}) name each "
                      "other, but run different operations",
                      lane, me.mask, file_of(me.where), me.where.line, l, t.mask, file_of(t.where),
                      t.where.line));
  }
  complete_warp(w, need);
}

void Block::complete_warp(unsigned w, unsigned lanes) {
  Thread* threads = &threads_[size_t(w) * 32];
  const auto lead = unsigned(std::countr_zero(lanes));
  const WarpKind kind = threads[lead].operation;
  uint64_t in[32];
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1)
    in[std::countr_zero(rest)] = threads[std::countr_zero(rest)].value;
  uint64_t common = 0;
  if (kind == WarpKind::ballot)
    for (unsigned rest = lanes; rest != 0; rest &= rest - 1)
      common |= in[std::countr_zero(rest)] << std::countr_zero(rest);
  if (kind == WarpKind::reduce) {
    common = in[lead];
    const auto how = Reduction(threads[lead].argument & 7);
    for (unsigned rest = lanes & (lanes - 1); rest != 0; rest &= rest - 1) {
      const uint64_t next = in[std::countr_zero(rest)];
      common = (threads[lead].argument & 8) != 0
                   ? unsigned(combine(how, int(unsigned(common)), int(unsigned(next))))
                   : combine(how, unsigned(common), unsigned(next));
    }
  }
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const int l = std::countr_zero(rest);
    Thread& t = threads[l];
    uint64_t out = common;
    if (kind == WarpKind::match) {
      out = 0;
      for (unsigned others = lanes; others != 0; others &= others - 1)
        if (in[std::countr_zero(others)] == in[l]) out |= uint64_t(1) << std::countr_zero(others);
    } else if (kind >= WarpKind::index && kind <= WarpKind::exclusive_or) {
      const int from = source_lane(t, l);
      if ((lanes >> from & 1) == 0)
        stop_kernel(Problem::inactive_lane,
                    fmt::format("lane {} reads from lane {}, which takes no part (mask {:#010x}, "
                                "there {:#010x}), {}:{}",
                                l, from, t.mask, lanes, file_of(t.where), t.where.line));
      out = in[from];
    }
    t.value = out;
  }
  warps_[w].waiting &= ~lanes;
  at_warp_ -= unsigned(std::popcount(lanes));
  if (schedule_ == Order::reverse)
    for (unsigned rest = lanes; rest != 0; rest &= ~(1u << (31 - std::countl_zero(rest))))
      make_ready(w * 32 + 31 - unsigned(std::countl_zero(rest)));
  else
    for (unsigned rest = lanes; rest != 0; rest &= rest - 1)
      make_ready(w * 32 + unsigned(std::countr_zero(rest)));
  if (kind == WarpKind::barrier) checker::warp_synced(w, lanes);
}

}  // namespace minim::emulator
