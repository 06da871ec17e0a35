#include "tests/cuda_emulator/checker.h"

#include <bit>
#include <link.h>

#include <fmt/format.h>

#include "tests/cuda_emulator/races.h"
#include "tests/cuda_emulator/shared_memory.h"

namespace minim::emulator::checker {

namespace {

// The program's own memory: constants and variables.
struct Segment {
  uintptr_t begin = 0;
  size_t bytes = 0;
  bool writable = false;
};

bool in_program(uintptr_t a, bool write) {
  static const std::vector<Segment> segments = [] {
    std::vector<Segment> all;
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* p) {
          for (int i = 0; i < info->dlpi_phnum; ++i)
            if (info->dlpi_phdr[i].p_type == PT_LOAD)
              static_cast<std::vector<Segment>*>(p)->push_back(
                  {info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, info->dlpi_phdr[i].p_memsz,
                   (info->dlpi_phdr[i].p_flags & PF_W) != 0});
          return 0;
        },
        &all);
    return all;
  }();
  for (const Segment& segment : segments)
    if (a - segment.begin < segment.bytes) return !write || segment.writable;
  return false;
}

void forget_regions() {
  for (Region& r : s.recent)
    r = Region();
}

[[noreturn]] void stop(Problem problem, std::string&& text, const void* code) {
  stop_kernel(problem, std::move(text), {{"at     ", code}});
}

// The memory that an access goes to, or nullptr where none is checked. Stops the launch for an
// access to memory that the kernel may not use.
Region* find_region(uintptr_t a, size_t bytes, bool write, const void* code) {
  const auto* address = reinterpret_cast<const void*>(a);
  const char* verb = write ? "write" : "read";
  Region found;
  if (is_device_address(address)) {
    Allocation* allocation = find_allocation(address);
    if (allocation == nullptr || (allocation->live && a + bytes > allocation->end()))
      stop(Problem::out_of_bounds,
           fmt::format("{} of {} bytes {}", verb, bytes,
                       allocation == nullptr || a == allocation->end()
                           ? describe_place(address)
                           : "across the end of " + allocation->describe()),
           code);
    if (!allocation->live)
      stop(Problem::use_after_free,
           fmt::format("{} of {} bytes at {}", verb, bytes, describe_place(address)), code);
    if (std::string wrong = note_use(*allocation); !wrong.empty())
      stop(Problem::stream_race, std::move(wrong), code);
    found = {allocation->begin, allocation->bytes, &allocation->shadow, s.work_seq, allocation};
  } else if (is_shared_address(address)) {
    SharedVariable* v = find_shared(address);
    if (v == nullptr || a + bytes > v->begin + v->bytes)
      stop(Problem::out_of_bounds,
           fmt::format("{} of {} bytes outside of the shared variables of the block", verb, bytes),
           code);
    found = {v->begin, v->bytes, &v->shadow, s.block_seq, nullptr};
  } else {
    const Execution& e = *executing;
    const auto arguments = uintptr_t(e.request->arguments.get());
    if (a - arguments < e.request->argument_bytes || in_program(a, write)) return nullptr;
    stop(Problem::host_pointer,
         on_other_stack(address)
             ? fmt::format("{} of another thread's local variable", verb)
             : fmt::format("{} of {} bytes of memory of the host, at {}", verb, bytes, address),
         code);
  }
  if (found.shadow->bytes() != found.bytes) found.shadow->reset(found.bytes);
  Region& place = s.recent[s.next_region++ % regions];
  place = found;
  return &place;
}

}  // namespace

bool enabled() {
  return options().checks && !s.off;
}

void reset() {
  const uint32_t seq = s.seq;  // goes on: shared variables still have records
  s = State();
  s.seq = seq;
}

uint64_t accesses() {
  return s.accesses;
}

void begin_work(const Ticket& ticket, const Clock& after) {
  s.ticket = ticket;
  s.after = &after;
  ++s.works;
  if (!enabled()) return;
  s.work_seq = ++s.seq;
  s.history.push_back({s.seq, ticket});
  forget_regions();
}

void begin_launch(const LaunchRequest& request, unsigned threads) {
  s.checking = enabled();
  s.noticed = request.argument_bytes == 0;  // without arguments it writes nothing
  s.threads = threads;
  if (s.checking) s.warp_seq.assign(size_t(threads) * 32, 0);
}

void end_launch() {
  if (!s.noticed) s.off = true;
  s.checking = false;
  forget_regions();
}

void notice_instrumentation() {
  if (executing != nullptr) s.noticed = true;
}

void begin_block(uint64_t first_thread) {
  if (!s.checking) return;
  s.first_thread = uint32_t(first_thread);
  s.block_seq = s.barrier_seq = ++s.seq;
  for (Region& r : s.recent)
    if (r.allocation == nullptr) r = Region();
}

void block_synced() {
  if (s.checking) s.barrier_seq = ++s.seq;
}

void warp_synced(unsigned warp, unsigned lanes) {
  if (!s.checking) return;
  ++s.seq;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    uint32_t* row = &s.warp_seq[(size_t(warp) * 32 + unsigned(std::countr_zero(rest))) * 32];
    for (unsigned others = lanes; others != 0; others &= others - 1)
      row[std::countr_zero(others)] = s.seq;
  }
}

void access(const void* address, size_t bytes, bool write, bool atomic, const void* code) {
  const Execution* e = executing;
  if (e == nullptr || !s.checking) return;
  const auto a = uintptr_t(address);
  Region* region = nullptr;
  for (Region& r : s.recent)
    if (a - r.begin < r.bytes && bytes <= r.begin + r.bytes - a) {
      region = &r;
      break;
    }
  if (region == nullptr) {
    if (on_own_stack(address)) return;
    region = find_region(a, bytes, write, code);
    if (region == nullptr) return;
  }
  ++s.accesses;
  const size_t offset = a - region->begin;
  if ((!write || atomic) && !region->shadow->is_written(offset, bytes))
    stop(Problem::uninitialised_read,
         fmt::format("read of {} bytes that nobody wrote, {}", bytes, place_in(*region, offset)),
         code);
  const uint32_t me = e->first_thread + e->thread;
  const Access now{atomic ? me | atomic_flag : me, code_of(code), write};
  visit_cells(*region, offset, bytes, now, [&](const Record& earlier, bool earlier_writes) {
    std::string text;
    std::vector<Place> places;
    const Problem problem =
        describe_race(earlier, now, *region, offset, earlier_writes, text, places);
    stop_kernel(problem, std::move(text), std::move(places));
  });
  if (write) region->shadow->set_written(offset, bytes);
}

void violation(Problem problem, const std::string& text, const void* code) {
  if (executing != nullptr && s.checking) stop(problem, std::string(text), code);
}

std::string note_use(Allocation& a) {
  if (s.after == nullptr || a.noted == s.works) return "";
  a.noted = s.works;
  a.shadow.concurrent = false;
  std::vector<Ticket> uses{s.ticket};
  for (const Ticket& use : a.uses)
    if (!s.after->covers(use)) {
      a.shadow.concurrent = true;
      uses.push_back(use);
    }
  a.uses = std::move(uses);
  if (!s.after->covers(a.created))
    return fmt::format("{} is used on a stream that does not wait for the one it was allocated on",
                       a.describe());
  return "";
}

namespace {

// What copies share: the use, and the records where several streams could race.
void visit_range(Allocation& a, size_t offset, size_t bytes, bool write, const std::string& what) {
  if (const std::string wrong = note_use(a); !wrong.empty())
    report(Problem::stream_race, what + ": " + wrong);
  if (!enabled() || s.after == nullptr || bytes == 0) return;
  const Region region{a.begin, a.bytes, &a.shadow, s.work_seq, &a};
  const Access now{copy_thread, 0, write};
  const auto on_race = [&](const Record& earlier, bool earlier_writes) {
    std::string text;
    std::vector<Place> places;
    const Problem problem =
        describe_race(earlier, now, region, offset, earlier_writes, text, places);
    report(problem, what + ": " + text, places);
  };
  if (offset == 0 && bytes == a.bytes)
    visit_whole(region, now, on_race);
  else
    visit_cells(region, offset, bytes, now, on_race);
}

bool prepare(Allocation& a, size_t bytes) {
  if (!enabled() || bytes == 0) return false;
  if (a.shadow.bytes() != a.bytes) a.shadow.reset(a.bytes);
  return true;
}

}  // namespace

void write_range(Allocation& a, size_t offset, size_t bytes, const std::string& what) {
  const bool checks = prepare(a, bytes);
  visit_range(a, offset, bytes, true, what);
  if (checks) a.shadow.set_written(offset, bytes);
}

void read_range(Allocation& a, size_t offset, size_t bytes, const std::string& what) {
  const bool checks = prepare(a, bytes);
  visit_range(a, offset, bytes, false, what);
  if (checks && !a.shadow.is_written(offset, bytes))
    report(Problem::uninitialised_read,
           fmt::format("{}: nobody wrote byte {} of {}", what,
                       a.shadow.first_unwritten(offset, bytes), a.describe()));
}

void copy_range(Allocation& to, size_t to_offset, Allocation& from, size_t from_offset,
                size_t bytes, const std::string& what) {
  const bool checks = prepare(to, bytes);
  prepare(from, bytes);
  visit_range(from, from_offset, bytes, false, what);
  visit_range(to, to_offset, bytes, true, what);
  if (checks) to.shadow.copy_written(to_offset, from.shadow, from_offset, bytes);
}

}  // namespace minim::emulator::checker
