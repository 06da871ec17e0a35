#include "tests/cuda_emulator/emulator.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "core/error.h"
#include "tests/cuda_emulator/block_state.h"
#include "tests/cuda_emulator/checker.h"
#include "tests/cuda_emulator/device_memory.h"
#include "tests/cuda_emulator/pinned_memory.h"
#include "tests/cuda_emulator/runtime.h"

namespace minim::emulator {

namespace {

uint64_t synchronisations = 0, allocations = 0;

void set_option(Options& o, std::string_view text) {
  const auto number = [text] {
    return unsigned(
        std::strtoul(std::string(text.substr(text.find(':') + 1)).c_str(), nullptr, 10));
  };
  if (text == "order=forward") {
    o.order = Order::forward;
  } else if (text == "order=reverse") {
    o.order = Order::reverse;
  } else if (text.starts_with("order=random")) {
    o.order = Order::random;
    if (text.find(':') != text.npos) o.seed = number();
  } else if (text == "deferred") {
    o.deferred = true;
  } else if (text == "nochecks") {
    o.checks = false;
  } else if (text == "noprotect") {
    o.protect = false;
  } else {
    fail(
        "CUDA_EMULATOR: \"{}\" is none of order=forward, order=reverse, order=random:SEED, "
        "deferred, "
        "nochecks, noprotect",
        text);
  }
}

}  // namespace

Options parse_options(std::string_view words) {
  Options o;
  o.driver_version = CUDART_VERSION;
  while (!words.empty()) {
    const size_t comma = std::min(words.find(','), words.size());
    set_option(o, words.substr(0, comma));
    words.remove_prefix(std::min(comma + 1, words.size()));
  }
  return o;
}

Options& options() {
  static Options instance = [] {
    const char* words = std::getenv("CUDA_EMULATOR");
    return parse_options(words == nullptr ? "" : words);
  }();
  return instance;
}

void count_synchronisation() {
  ++synchronisations;
}

void count_allocation() {
  ++allocations;
}

std::vector<std::string> leaks() {
  std::vector<std::string> all = live_allocations();
  for (const auto& more : {live_pinned(), live_streams(), live_graphs()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

Statistics statistics() {
  Statistics s = block.statistics();
  s.checked_accesses = checker::accesses();
  s.synchronisations = synchronisations;
  s.allocations = allocations;
  return s;
}

void reset() {
  const Call call;
  reset_graphs();
  reset_events();
  reset_work();
  reset_pinned();
  reset_device_memory();
  reset_attributes();
  reset_errors();
  checker::reset();
  block.reset_statistics();
  synchronisations = allocations = 0;
}

}  // namespace minim::emulator
