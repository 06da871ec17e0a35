#include <functional>

#include <doctest/doctest.h>

#include "core/cuda/launch.h"
#include "tests/cuda_emulator/device_array.h"

// Operations of warps give what CUDA's documentation says. These kernels write to arrays of results
// by lane; a block has one warp unless said otherwise.
namespace minim::emulator {

namespace {

constexpr unsigned everybody = 0xffffffffu;

__global__ void shuffle_kernel(int* idx, int* up, int* down, int* xor_, int width) {
  const int lane = int(threadIdx.x);
  idx[lane] = __shfl_sync(everybody, lane, lane + 3, width);
  up[lane] = __shfl_up_sync(everybody, lane, 2, width);
  down[lane] = __shfl_down_sync(everybody, lane, 2, width);
  xor_[lane] = __shfl_xor_sync(everybody, lane, 8, width);
}

TEST_CASE("Shuffles read other lanes of their part of the warp, or their own") {
  for (const int width : {32, 8}) {
    const Emulation emulation;
    const DeviceArray<int> idx(32), up(32), down(32), exclusive(32);
    cuda::launch(shuffle_kernel, {.threads = {32}}, idx.data(), up.data(), down.data(),
                 exclusive.data(), width);
    const auto a = idx.values(), b = up.values(), c = down.values(), d = exclusive.values();
    for (int lane = 0; lane < 32; ++lane) {
      CAPTURE(lane);
      const int first = lane / width * width, at = lane % width;
      const auto i = size_t(lane);
      CHECK(a[i] == first + (at + 3) % width);
      CHECK(b[i] == (at >= 2 ? lane - 2 : lane));
      CHECK(c[i] == (at + 2 < width ? lane + 2 : lane));
      // With parts of 8, lane ^ 8 lies in the next part, which cannot be read, or in the one
      // before.
      CHECK(d[i] == (width == 32 || (lane ^ 8) < first ? lane ^ 8 : lane));
    }
  }
}

__global__ void vote_kernel(unsigned* ballot, int* any, int* all, unsigned* match) {
  const int lane = int(threadIdx.x);
  ballot[lane] = __ballot_sync(everybody, lane % 3 == 0);
  any[lane] = __any_sync(everybody, lane == 31);
  all[lane] = __all_sync(everybody, lane < 31);
  match[lane] = __match_any_sync(everybody, lane / 16);
}

TEST_CASE("Votes see all lanes") {
  const Emulation emulation;
  const DeviceArray<unsigned> ballot(32), match(32);
  const DeviceArray<int> any(32), all(32);
  cuda::launch(vote_kernel, {.threads = {32}}, ballot.data(), any.data(), all.data(), match.data());
  CHECK(ballot.values()[7] == 0b01001001001001001001001001001001u);
  CHECK(any.values()[0] == 1);
  CHECK(all.values()[0] == 0);
  CHECK(match.values()[3] == 0x0000ffffu);
  CHECK(match.values()[20] == 0xffff0000u);
}

__global__ void reduce_kernel(int* out, unsigned* bits) {
  const int v = int(threadIdx.x) - 20;  // -20 .. 11
  const int sum = __reduce_add_sync(everybody, v);
  const int smallest = __reduce_min_sync(everybody, v);
  const int largest = __reduce_max_sync(everybody, v);
  const unsigned largest_bits = __reduce_max_sync(everybody, unsigned(v));
  const unsigned with_and = __reduce_and_sync(everybody, threadIdx.x | 64u);
  const unsigned with_or = __reduce_or_sync(everybody, threadIdx.x);
  const unsigned with_xor = __reduce_xor_sync(everybody, threadIdx.x == 5 ? 6u : 0u);
  if (threadIdx.x != 0) return;
  out[0] = sum;
  out[1] = smallest;
  out[2] = largest;
  bits[0] = largest_bits;
  bits[1] = with_and;
  bits[2] = with_or;
  bits[3] = with_xor;
}

TEST_CASE("Reductions of a warp tell signed from unsigned") {
  const Emulation emulation;
  const DeviceArray<int> out(3);
  const DeviceArray<unsigned> bits(4);
  cuda::launch(reduce_kernel, {.threads = {32}}, out.data(), bits.data());
  CHECK(out.values() == std::vector<int>{-144, -20, 11});  // 0 + .. + 31 = 496, less 32 * 20
  CHECK(bits.values() == std::vector<unsigned>{0xffffffffu, 64, 31, 6});
}

// The last warp has 8 lanes; lanes that returned are not waited for.
__global__ void part_kernel(unsigned* out) {
  if (threadIdx.x % 2 == 1) return;
  const unsigned mask = __activemask();
  out[threadIdx.x] = __ballot_sync(everybody, 1);
  if (threadIdx.x == 0) out[1] = mask & 1u;
}

TEST_CASE("Lanes that have returned, or never were, are not waited for") {
  for (const Order order : {Order::forward, Order::reverse, Order::random}) {
    const Emulation emulation(order);
    const DeviceArray<unsigned> out(std::vector<unsigned>(40));
    cuda::launch(part_kernel, {.threads = {40}}, out.data());
    CHECK(out.values()[0] == 0x55555555u);
    CHECK(out.values()[38] == 0x55u);
    CHECK(out.values()[1] == 1);
  }
}

__global__ void barrier_kernel(int* out) {
  const int count = __syncthreads_count(threadIdx.x < 10);
  const int all = __syncthreads_and(threadIdx.x < 63);
  const int any = __syncthreads_or(threadIdx.x == 63);
  if (threadIdx.x == 7) {
    out[0] = count;
    out[1] = all;
    out[2] = any;
  }
}

TEST_CASE("Barriers of the block count predicates") {
  const Emulation emulation;
  const DeviceArray<int> out(3);
  cuda::launch(barrier_kernel, {.threads = {64}}, out.data());
  CHECK(out.values() == std::vector<int>{10, 0, 1});
}

__global__ void place_kernel(int* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * 24 + thread] = int(100 * blockIdx.z + 10 * threadIdx.y + threadIdx.z);
}

TEST_CASE("Blocks and threads have three dimensions") {
  const Emulation emulation;
  const DeviceArray<int> out(24 * 12);
  cuda::launch(place_kernel, {.blocks = {2, 3, 2}, .threads = {2, 3, 4}}, out.data());
  const std::vector<int> values = out.values();
  // Block (1, 2, 1) is the 11th from 0, thread (1, 2, 3) the 23rd.
  CHECK(values[11 * 24 + 23] == 123);
  CHECK(values[0] == 0);
}

__global__ void atomic_kernel(int* i, unsigned* u, float* f, unsigned long long* l) {
  const int t = int(threadIdx.x);
  atomicAdd(&i[0], t);
  atomicSub(&i[1], t);
  atomicMax(&i[2], t);
  atomicMin(&i[3], -t);
  atomicExch(&i[4], 7);
  atomicCAS(&i[5], 0, 9);
  atomicAnd(&u[0], ~(1u << t));
  atomicOr(&u[1], 1u << t);
  atomicXor(&u[2], 1u);
  atomicInc(&u[3], 4);
  atomicAdd(f, 0.5f);
  atomicAdd(l, 1ull << 33);
}

TEST_CASE("Atomics of all kinds add up") {
  const Emulation emulation;
  const DeviceArray<int> i(std::vector<int>(6));
  const DeviceArray<unsigned> u(std::vector<unsigned>{everybody, 0, 0, 0});
  const DeviceArray<float> f(std::vector<float>(1));
  const DeviceArray<unsigned long long> l(std::vector<unsigned long long>(1));
  cuda::launch(atomic_kernel, {.threads = {32}}, i.data(), u.data(), f.data(), l.data());
  CHECK(i.values() == std::vector<int>{496, -496, 31, -31, 7, 9});
  CHECK(u.values() == std::vector<unsigned>{0, everybody, 0, 32 % 5});
  CHECK(f.values()[0] == 16);
  CHECK(l.values()[0] == 1ull << 38);
}

}  // namespace

}  // namespace minim::emulator
