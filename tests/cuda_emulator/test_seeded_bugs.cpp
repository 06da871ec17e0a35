#include <functional>

#include <doctest/doctest.h>

#include "tests/cuda_emulator/device_array.h"
#include "tests/cuda_emulator/kernels.h"

// The net holds: kernels with one bug each, and what must be said of it. test_kernels.cpp runs the
// same kernels without bugs.
namespace minim::emulator {

namespace {

struct Case {
  const char* bug;
  Problem problem;
  const char* words;  // that the finding must have
  std::function<void()> run;
  bool by_barriers = false;  // found without instrumentation too
};

template <Bug bug>
void run_axpy() {
  const int n = 1003;
  const DeviceArray<float> x(some_numbers(size_t(n))), y(some_numbers(size_t(n)));
  axpy<bug>(y.data(), x.data(), 2.0f, n);
}

void run_axpy_forgetting() {  // into a new array: the rest stays unwritten
  const DeviceArray<float> x(some_numbers(7)), y(7);
  cudaMemset(y.data(), 0, 4 * sizeof(float));
  axpy<Bug::axpy_forgets_the_rest>(y.data(), x.data(), 2.0f, 7);
  y.values();
}

template <Bug bug>
void run_softmax() {
  const int rows = 3, dim = 96;  // the last warp of a block has nothing to do
  const DeviceArray<float> x(some_numbers(size_t(rows * dim))), y(size_t(rows * dim));
  softmax<bug>(y.data(), x.data(), rows, dim);
  y.values();
}

template <Bug bug>
void run_transpose() {
  const DeviceArray<float> x(some_numbers(33 * 50)), y(33 * 50);
  transpose<bug>(y.data(), x.data(), 33, 50);
  y.values();
}

void run_reverse() {
  const DeviceArray<float> x(some_numbers(128)), y(128);
  reverse_in_warps<Bug::transpose_warp_without_syncwarp>(y.data(), x.data(), 128);
}

template <Bug bug>
void run_embedding() {
  const int tokens = 6, dim = 70, rows = 4;
  const bool cleared = bug != Bug::embedding_adds_to_nothing;
  const DeviceArray<float> dy(some_numbers(size_t(tokens * dim))), dweight(size_t(rows * dim));
  const DeviceArray<int> ids(std::vector<int>{1, 2, -1, 1, 3, 1});
  if (cleared) cudaMemset(dweight.data(), 0, size_t(rows * dim) * sizeof(float));
  embedding_backward<bug>(dweight.data(), dy.data(), ids.data(), tokens, dim);
}

template <Bug bug>
void run_histogram() {
  std::vector<uint8_t> x;
  for (int i = 0; i < 700; ++i)
    x.push_back(uint8_t(i % 5));
  const DeviceArray<uint8_t> dx(x);
  const DeviceArray<unsigned> counts(std::vector<unsigned>(256));
  histogram<bug>(counts.data(), dx.data(), 700);
}

template <Bug bug>
void run_quantize() {
  const DeviceArray<float> x(some_numbers(600)), scales(3);
  const DeviceArray<uint8_t> codes(600);
  quantize<bug>(codes.data(), scales.data(), x.data(), 600);
}

std::vector<Case> kernel_cases() {
  using P = Problem;
  return {
      {"axpy_reads_past_the_end", P::out_of_bounds, "allocation 1 of 4012 bytes",
       run_axpy<Bug::axpy_reads_past_the_end>},
      {"axpy_writes_past_the_end", P::out_of_bounds, "allocation 2 of 4012 bytes",
       run_axpy<Bug::axpy_writes_past_the_end>},
      {"axpy_misaligned", P::misaligned, "alignment", run_axpy<Bug::axpy_misaligned>},
      {"axpy_forgets_the_block", P::block_race, "block 1 thread 0",
       run_axpy<Bug::axpy_forgets_the_block>},
      {"axpy_forgets_the_rest", P::uninitialised_read, "copy to the host: nobody wrote byte 16",
       run_axpy_forgetting},
      {"axpy_overflows_the_index", P::arithmetic, "overflow",
       run_axpy<Bug::axpy_overflows_the_index>},
      {"softmax_no_barrier_after_partials", P::uninitialised_read, "shared variable",
       run_softmax<Bug::softmax_no_barrier_after_partials>},
      {"softmax_no_barrier_before_reuse", P::race, "no barrier lies between",
       run_softmax<Bug::softmax_no_barrier_before_reuse>},
      {"softmax_returns_before_barrier", P::divergent_barrier,
       "32 threads (the first is 96) have returned",
       run_softmax<Bug::softmax_returns_before_barrier>, true},
      {"softmax_barrier_in_branches", P::divergent_barrier, "wait at different barriers",
       run_softmax<Bug::softmax_barrier_in_branches>, true},
      {"softmax_barrier_in_loop", P::divergent_barrier, "wait at different barriers",
       run_softmax<Bug::softmax_barrier_in_loop>, true},
      {"softmax_mask_without_caller", P::warp_mask, "lane 0 is not in the mask 0xffff0000",
       run_softmax<Bug::softmax_mask_without_caller>, true},
      {"softmax_shuffle_in_branch", P::warp_mask, "lanes wait at a warp operation",
       run_softmax<Bug::softmax_shuffle_in_branch>, true},
      {"softmax_shuffle_from_inactive_lane", P::inactive_lane, "lane 30 reads from lane 31",
       run_softmax<Bug::softmax_shuffle_from_inactive_lane>, true},
      {"softmax_bad_width", P::warp_mask, "width is 24", run_softmax<Bug::softmax_bad_width>, true},
      {"softmax_row_one_too_long", P::block_race, "block 0 thread 96",
       run_softmax<Bug::softmax_row_one_too_long>},
      {"softmax_everybody_writes", P::race, "is written by",
       run_softmax<Bug::softmax_everybody_writes>},
      {"softmax_partials_too_few", P::out_of_bounds, "shared",
       run_softmax<Bug::softmax_partials_too_few>},
      {"transpose_no_barrier", P::uninitialised_read, "shared variable",
       run_transpose<Bug::transpose_no_barrier>},
      {"transpose_reads_outside_of_the_edge", P::uninitialised_read, "shared variable",
       run_transpose<Bug::transpose_reads_outside_of_the_edge>},
      {"transpose_writes_outside", P::out_of_bounds, "write of 4 bytes",
       run_transpose<Bug::transpose_writes_outside>},
      {"transpose_tile_too_small", P::out_of_bounds, "outside of the shared variables",
       run_transpose<Bug::transpose_tile_too_small>},
      {"transpose_warp_without_syncwarp", P::race, "shared variable", run_reverse},
      {"embedding_blocks_share_rows", P::block_race, "blocks of a launch are not ordered",
       run_embedding<Bug::embedding_blocks_share_rows>},
      {"embedding_threads_share_columns", P::race, "no barrier lies between",
       run_embedding<Bug::embedding_threads_share_columns>},
      {"embedding_forgets_the_padding", P::out_of_bounds, "read of 4 bytes",
       run_embedding<Bug::embedding_forgets_the_padding>},
      {"embedding_adds_to_nothing", P::uninitialised_read, "nobody wrote",
       run_embedding<Bug::embedding_adds_to_nothing>},
      {"histogram_not_atomic_in_shared", P::race, "shared variable",
       run_histogram<Bug::histogram_not_atomic_in_shared>},
      {"histogram_not_atomic_in_global", P::block_race, "allocation",
       run_histogram<Bug::histogram_not_atomic_in_global>},
      {"histogram_bins_not_cleared", P::uninitialised_read, "shared variable",
       run_histogram<Bug::histogram_bins_not_cleared>},
      {"histogram_no_barrier_after_clearing", P::uninitialised_read, "shared variable",
       run_histogram<Bug::histogram_no_barrier_after_clearing>},
      {"histogram_reads_what_others_add", P::block_race, "allocation",
       run_histogram<Bug::histogram_reads_what_others_add>},
      {"quantize_codes_past_the_end", P::out_of_bounds, "write of 1 bytes 0 bytes behind",
       run_quantize<Bug::quantize_codes_past_the_end>},
      {"quantize_no_barrier_before_scale", P::uninitialised_read, "shared variable",
       run_quantize<Bug::quantize_no_barrier_before_scale>},
      {"quantize_local_array_too_small", P::out_of_bounds, "index outside of an array",
       run_quantize<Bug::quantize_local_array_too_small>},
      {"quantize_shifts_too_far", P::arithmetic, "shift",
       run_quantize<Bug::quantize_shifts_too_far>},
      {"quantize_stack_too_large", P::stack_overflow, "local variables",
       run_quantize<Bug::quantize_stack_too_large>},
      {"quantize_traps", P::trap, "kernels.cpp", run_quantize<Bug::quantize_traps>, true},
  };
}

TEST_CASE("Every bug in a kernel is found, and named for what it is") {
  for (const Case& c : kernel_cases()) {
    if (!c.by_barriers && !kernels_are_instrumented()) continue;
    CAPTURE(std::string(c.bug));
    const Emulation emulation;
    const Collect collect;
    try {
      c.run();
    } catch (const Error&) {  // a fault of the device makes the next call fail
    }
    REQUIRE(!collect.findings.empty());
    const Finding& found = collect.findings[0];
    CAPTURE(found.text);
    CHECK(name_of(found.problem) == name_of(c.problem));
    CHECK(found.text.find(c.words) != found.text.npos);
  }
}

TEST_CASE("Every bug in a kernel is found in every order of threads and blocks") {
  for (const Case& c : kernel_cases())
    for (const Order order : {Order::reverse, Order::random}) {
      if (!c.by_barriers && !kernels_are_instrumented()) continue;
      CAPTURE(std::string(c.bug));
      CAPTURE(int(order));
      const Emulation emulation(order, order == Order::random);
      const Collect collect;
      try {
        c.run();
        cudaDeviceSynchronize();
      } catch (const Error&) {
      }
      CHECK(!collect.findings.empty());
    }
}

TEST_CASE("A finding names the lines, the kernel and the thread") {
  if (!kernels_are_instrumented()) return;
  const Emulation emulation;
  const Collect collect;
  run_histogram<Bug::histogram_not_atomic_in_shared>();
  REQUIRE(collect.findings.size() == 1);
  const std::string& text = collect.findings[0].text;
  CAPTURE(text);
  // Thread 0 of 192 counts the bytes 0, 192, 384 and 576, which are 0, 2, 4 and 1; then thread 1
  // comes to its first, which is 1:
  //   race: byte 4 of a shared variable of 1024 bytes is read by block 0 thread 1, written before
  //   by block 0 thread 0: no barrier lies between
  //     in histogram_kernel<..> <<<(3, 1, 1), (64, 1, 1), 0>>>, block (0, 0, 0), thread (1, 0, 0)
  //     now:    kernels.cpp:LINE
  //     before: kernels.cpp:LINE
  for (const char* words :
       {"race: byte 4 of a shared variable of 1024 bytes is read by block 0 thread 1, written "
        "before by block 0 thread 0: no barrier lies between",
        "histogram_kernel", "<<<(3, 1, 1), (64, 1, 1), 0>>>, block (0, 0, 0), thread (1, 0, 0)",
        "now:    kernels.cpp:", "before: kernels.cpp:"})
    CHECK(text.find(words) != text.npos);
}

TEST_CASE("After a fault that a device reports all calls fail; after others the program goes on") {
  if (!kernels_are_instrumented()) return;
  const Emulation emulation;
  const Collect collect;
  run_embedding<Bug::embedding_threads_share_columns>();
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  const DeviceArray<float> x(some_numbers(8)), y(some_numbers(8));
  axpy<Bug::axpy_misaligned>(y.data(), x.data(), 2.0f, 8);
  CHECK(cudaDeviceSynchronize() == cudaErrorMisalignedAddress);
  CHECK(cudaGetLastError() == cudaErrorMisalignedAddress);
  CHECK(cudaGetLastError() == cudaErrorMisalignedAddress);  // it stays
  float* more = nullptr;
  CHECK(cudaMalloc(&more, 4) == cudaErrorMisalignedAddress);
  CHECK_THROWS_AS(axpy(y.data(), x.data(), 2.0f, 8), Error);
}

}  // namespace

}  // namespace minim::emulator
