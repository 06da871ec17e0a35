#include "optim/adam8bit_update.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/launch.h"
#include "optim/adam8bit_formula.h"
#include "optim/quantize_block.h"

#if defined(MINIM_WITH_CUDA)
#include "optim/adam8bit_device.h"
#endif

namespace minim::optim {

namespace {

// One step of the elements of one block, whose moments are in f32.
template <class T>
struct BlockStep {
  using R = Compute<T>;
  Adam8bitFormula<T> formula;
  float gradient_scale;
  bool guarded;  // elements whose gradient is not sound are left alone

  struct Result {
    float m_largest, v_largest;  // magnitudes after the step
    int64_t skipped;
  };

  Result operator()(T* __restrict p, const T* __restrict g, float* __restrict m,
                    float* __restrict v, int64_t n) const {
    // Nearly all blocks are sound, and take the loop that need not ask.
    if (guarded && !all_sound(g, n)) return run<true>(p, g, m, v, n);
    return run<false>(p, g, m, v, n);
  }

 private:
  bool all_sound(const T* g, int64_t n) const {
    LargestMagnitude largest;
    for (int64_t i = 0; i < n; ++i)
      largest.see(float(g[i]) * gradient_scale);
    return largest.value() <= largest_gradient;  // NaN is not
  }

  template <bool asks>
  Result run(T* __restrict p, const T* __restrict g, float* __restrict m, float* __restrict v,
             int64_t n) const {
    const BlockStep s = *this;
    LargestMagnitude m_largest, v_largest;
    int32_t skipped = 0;
    for (int64_t i = 0; i < n; ++i) {
      const float given = float(g[i]) * s.gradient_scale;
      const bool sound = !asks || std::abs(given) <= largest_gradient;
      float mean = m[i], square = v[i];
      p[i] = T(asks ? s.formula(R(p[i]), given, mean, square, sound)
                    : s.formula(R(p[i]), given, mean, square));
      m[i] = mean;
      v[i] = square;
      m_largest.see(mean);
      v_largest.see(square);
      skipped += sound ? 0 : 1;
    }
    return {m_largest.value(), v_largest.value(), skipped};
  }
};

// Asks for memory that is soon to be read, and perhaps written.
template <class T>
void prefetch(const T* data, int64_t n) {
  for (int64_t i = 0; i < n; i += 64 / int64_t(sizeof(T)))
    __builtin_prefetch(data + i, 1);
}

// Every block of a parameter on the CPU: reads and writes its codes, weights and gradients once. A
// device does the same in another order (optim/adam8bit_device.h): there a thread takes 16 weights
// through all of it in registers, where here loops over a block vectorise one after the other.
// Either loop would be several times slower in the other's place.
template <class T>
int64_t step_blocks(const Update& u, const CodedMoment& first, const CodedMoment& second,
                    int64_t block, const BlockStep<T>& step) {
  T* p = u.parameter.data<T>();
  const T* g = u.gradient.data<T>();
  uint8_t *m_codes = first.codes.data<uint8_t>(), *v_codes = second.codes.data<uint8_t>();
  float *m_absmax = first.absmax.data<float>(), *v_absmax = second.absmax.data<float>();
  const float *m_values = first.values.data<float>(), *v_values = second.values.data<float>();
  const int64_t n = u.parameter.numel();
  std::atomic<int64_t> skipped = 0;
  constexpr int64_t grain = 32768;  // elements that one thread takes at a time
  parallel_chunks(blocks_of(n, block), grain / block, [&](int64_t begin, int64_t end) {
    float m[largest_block], v[largest_block];
    int64_t own_skipped = 0;
    for (int64_t b = begin; b < end; ++b) {
      const int64_t at = b * block, count = std::min(block, n - at);
      const bool is_last = count < block;
      // Short blocks change their loops too often for the hardware to see what comes next.
      if (const int64_t ahead = at + 2 * block; block <= 512 && ahead + block <= n) {
        prefetch(p + ahead, block);
        prefetch(g + ahead, block);
        prefetch(m_codes + ahead, block);
        prefetch(v_codes + ahead, block);
      }
      dequantize_block(m_codes + at, m_absmax[b], m_values, m, count);
      dequantize_block(v_codes + at, v_absmax[b], v_values, v, count);
      const auto [m_largest, v_largest, left_alone] = step(p + at, g + at, m, v, count);
      own_skipped += left_alone;
      m_absmax[b] = quantize_block(m, m_largest, first.map, is_last, m_codes + at, count);
      v_absmax[b] = quantize_block(v, v_largest, second.map, is_last, v_codes + at, count);
    }
    if (own_skipped > 0) skipped += own_skipped;
  });
  return skipped;
}

}  // namespace

int64_t adam8bit_update(const Update& u, const CodedMoment& first, const CodedMoment& second,
                        const Adam8bitNumbers& o) {
  int64_t skipped = 0;
  dispatch_float(u.parameter.dtype(), "adam8bit", [&]<class T>() {
    using R = Compute<T>;
    const AdamCorrections& c = o.corrections;
    const Adam8bitFormula<T> formula = {float(c.beta1),
                                        float(1.0 - c.beta1),
                                        float(c.beta2),
                                        float(1.0 - c.beta2),
                                        R(o.decay),
                                        R(c.step_size()),
                                        R(c.inverse_c2()),
                                        R(o.eps),
                                        c};
#if defined(MINIM_WITH_CUDA)
    if (u.launches != nullptr) return add_8bit_steps<T>(u, first, second, o, formula);
#endif
    skipped =
        step_blocks<T>(u, first, second, o.block, {formula, float(u.gradient_scale), o.guarded});
  });
  return skipped;
}

}  // namespace minim::optim
