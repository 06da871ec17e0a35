#pragma once

#include <bit>
#include <cstdint>

#include "core/cuda/launch_list.h"
#include "optim/adam8bit_formula.h"
#include "optim/adam8bit_update.h"
#include "optim/step_elements.h"

// The step of an 8-bit Adam on a device; private to optim/.
namespace minim::optim {

// How one moment is coded.
struct DeviceMap {
  const float* values;
  const uint32_t* search;
  uint32_t flip;
  int32_t floor;  // as in CodeMap::Rules
  int32_t raise_scales;
  bool operator==(const DeviceMap&) const = default;

  __device__ uint8_t code_of(float x, float divisor) const {
    const float quotient =
        floor != 0 && divisor > 1.0f ? positive_quotient(x, divisor) : x / divisor;
    const uint32_t key = CodeMap::key_of(quotient, flip);
    return CodeMap::find(search, uint16_t(key >> 16), uint16_t(key));
  }
};

// 4096 weights by a block of threads, 16 by each: between reading and writing codes the moments
// stay in its registers. A thread has four times four neighbours, and all threads of a block of
// codes lie next to each other.
template <class T>
struct Adam8bitSteps {
  using R = Compute<T>;
  static constexpr int per_thread = 16;
  static constexpr int64_t elements = per_thread * cuda::block_threads;

  struct Tensors {
    T* p;
    const T* g;
    uint8_t *m_codes, *v_codes;
    float *m_absmax, *v_absmax;
    unsigned long long* skipped;
    int64_t n;
    int64_t aligned;  // may all be read in fours?
    bool operator==(const Tensors&) const = default;
  };
  struct Numbers {
    Adam8bitFormula<T> formula;
    double gradient_scale;
    const double* gradient_factor;
    const int64_t* left_out;  // steps among those counted that were not made, or null
    DeviceMap m_map, v_map;
    int32_t block;
    int32_t guarded;
    bool operator==(const Numbers&) const = default;
  };
  Tensors tensors;
  Numbers numbers;

  __device__ void operator()(const cuda::BlockGroup&, int64_t chunk) const {
    SHARED(float, m_values, [256]);
    SHARED(float, v_values, [256]);
    const int thread = int(threadIdx.x);
    m_values[thread] = numbers.m_map.values[thread];
    v_values[thread] = numbers.v_map.values[thread];
    __syncthreads();

    const Tensors& t = tensors;
    const int block = numbers.block, threads = block / per_thread;
    const int lane = thread % threads;
    const int64_t number = chunk * (elements / block) + thread / threads;  // of the block of codes
    const int64_t at = number * block;
    const int64_t left = t.n - at;
    const int count = left < 0 ? 0 : (left < block ? int(left) : block);
    const float m_old = count > 0 ? t.m_absmax[number] : 0.0f;
    const float v_old = count > 0 ? t.v_absmax[number] : 0.0f;
    const double factor = numbers.gradient_factor != nullptr ? *numbers.gradient_factor : 1.0;
    const float scale = float(numbers.gradient_scale * factor);
    const bool is_earlier = numbers.left_out != nullptr && *numbers.left_out > 0;
    const Adam8bitFormula<T> formula =
        is_earlier ? numbers.formula.earlier(*numbers.left_out) : numbers.formula;

    float m[per_thread], v[per_thread];
    int32_t m_largest = 0, v_largest = 0, skipped = 0;
    for (int q = 0; q < per_thread / 4; ++q) {
      const int first = (q * threads + lane) * 4;
      Four<T> p{}, g{};
      Four<uint8_t> mc{}, vc{};
      read(t.p + at, first, count, p);
      read(t.g + at, first, count, g);
      read(t.m_codes + at, first, count, mc);
      read(t.v_codes + at, first, count, vc);
      for (int k = 0; k < 4; ++k) {
        float mean = m_values[mc.at[k]] * m_old, square = v_values[vc.at[k]] * v_old;
        const float given = float(g.at[k]) * scale;
        const bool sound = numbers.guarded == 0 || fabsf(given) <= largest_gradient;
        p.at[k] = T(formula(R(p.at[k]), given, mean, square, sound));
        const bool exists = first + k < count;
        m[4 * q + k] = exists ? mean : 0.0f;
        v[4 * q + k] = exists ? square : 0.0f;
        m_largest = larger(m_largest, std::bit_cast<int32_t>(m[4 * q + k]) & 0x7FFFFFFF);
        v_largest = larger(v_largest, std::bit_cast<int32_t>(v[4 * q + k]) & 0x7FFFFFFF);
        skipped += exists && !sound ? 1 : 0;
      }
      write(t.p + at, first, count, p);
    }
    if (skipped > 0) atomicAdd(t.skipped, static_cast<unsigned long long>(skipped));

    largest_of_block(threads, m_largest, v_largest);
    const float m_new = std::bit_cast<float>(m_largest), v_new = std::bit_cast<float>(v_largest);
    const float m_divisor = divisor_of(m_new, numbers.m_map.raise_scales != 0);
    const float v_divisor = divisor_of(v_new, numbers.v_map.raise_scales != 0);
    if (lane == 0 && count > 0) {
      const bool is_last = count < block;
      t.m_absmax[number] = is_last && numbers.m_map.raise_scales != 0 ? m_divisor : m_new;
      t.v_absmax[number] = is_last && numbers.v_map.raise_scales != 0 ? v_divisor : v_new;
    }
    for (int q = 0; q < per_thread / 4; ++q) {
      const int first = (q * threads + lane) * 4;
      Four<uint8_t> mc, vc;
      for (int k = 0; k < 4; ++k) {
        mc.at[k] = numbers.m_map.code_of(m[4 * q + k], m_divisor);
        vc.at[k] = numbers.v_map.code_of(v[4 * q + k], v_divisor);
      }
      write(t.m_codes + at, first, count, mc);
      write(t.v_codes + at, first, count, vc);
    }
  }

 private:
  __device__ static int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }

  template <class E>
  __device__ void read(const E* from, int first, int count, Four<E>& four) const {
    if (tensors.aligned != 0 && first + 4 <= count) {
      four = *reinterpret_cast<const Four<E>*>(from + first);
      return;
    }
    for (int k = 0; k < 4; ++k)
      if (first + k < count) four.at[k] = from[first + k];
  }
  template <class E>
  __device__ void write(E* to, int first, int count, const Four<E>& four) const {
    if (tensors.aligned != 0 && first + 4 <= count) {
      *reinterpret_cast<Four<E>*>(to + first) = four;
      return;
    }
    for (int k = 0; k < 4; ++k)
      if (first + k < count) to[first + k] = four.at[k];
  }

  // Gives all threads of a block of codes the largest of each of their two numbers. After it all of
  // them have read what one of them may overwrite.
  __device__ static void largest_of_block(int threads, int32_t& m, int32_t& v) {
    constexpr int lanes = cuda::warp_lanes;
    for (int step = 1; step < threads && step < lanes; step *= 2) {
      m = larger(m, __shfl_xor_sync(0xffffffffu, m, step));
      v = larger(v, __shfl_xor_sync(0xffffffffu, v, step));
    }
    if (threads <= lanes) return __syncwarp();
    SHARED(int32_t, of_warp, [2][cuda::block_threads / cuda::warp_lanes]);
    const int thread = int(threadIdx.x), warp = thread / lanes;
    if (thread % lanes == 0) {
      of_warp[0][warp] = m;
      of_warp[1][warp] = v;
    }
    __syncthreads();
    const int warps = threads / lanes, first = warp / warps * warps;
    for (int w = first; w < first + warps; ++w) {
      m = larger(m, of_warp[0][w]);
      v = larger(v, of_warp[1][w]);
    }
  }
};

inline DeviceMap map_on_device(const CodedMoment& moment) {
  return {moment.values.data<float>(), reinterpret_cast<const uint32_t*>(moment.search.raw()),
          moment.map.flip(), moment.map.rules().floor, moment.map.rules().raise_scales};
}

// Adds a parameter's step to those that the optimizer launches together.
template <class T>
void add_8bit_steps(const Update& u, const CodedMoment& first, const CodedMoment& second,
                    const Adam8bitNumbers& o, const Adam8bitFormula<T>& formula) {
  using Steps = Adam8bitSteps<T>;
  const int64_t n = u.parameter.numel();
  const typename Steps::Tensors tensors{
      u.parameter.data<T>(),
      u.gradient.data<T>(),
      first.codes.data<uint8_t>(),
      second.codes.data<uint8_t>(),
      first.absmax.data<float>(),
      second.absmax.data<float>(),
      static_cast<unsigned long long*>(o.skipped.raw()),
      n,
      is_aligned(u.parameter.raw()) && is_aligned(u.gradient.raw())};
  u.launches->add<Steps>(
      0, (n + Steps::elements - 1) / Steps::elements, tensors,
      {formula, u.gradient_scale, u.gradient_factor, u.left_out, map_on_device(first),
       map_on_device(second), int32_t(o.block), o.guarded});
}

}  // namespace minim::optim
