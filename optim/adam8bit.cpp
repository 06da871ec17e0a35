#include "optim/adam8bit.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/parallel.h"
#include "optim/adam_update.h"
#include "optim/option_checks.h"
#include "optim/quantize.h"
#include "optim/quantize_block.h"

namespace minim::optim {

namespace {

constexpr std::string_view behaviours[] = {"minim", "bitsandbytes", "bitsandbytes_floor"};
constexpr float largest_gradient = 1e18f;  // its square is finite in f32, and so is a sum of them

bool keeps_f32(const ParameterSpec& parameter, int64_t min_8bit_size, std::string_view names) {
  if (parameter.shape.numel() < min_8bit_size) return true;
  while (!names.empty()) {
    const std::string_view part = names.substr(0, names.find('|'));
    if (!part.empty() && parameter.name.find(part) != std::string::npos) return true;
    names.remove_prefix(std::min(part.size() + 1, names.size()));
  }
  return false;
}

// One step of the elements of one block, whose moments are in f32.
template <class T>
struct BlockStep {
  using R = Compute<T>;
  float gradient_scale;
  float beta1, weight1, beta2, weight2;  // b1, 1 - b1, b2, 1 - b2
  R decay;                               // 1 - lr * weight_decay
  R step_size, inverse_c2, eps;          // lr / (1 - b1^t), 1 / sqrt(1 - b2^t)
  bool guarded;                          // elements whose gradient is not sound are left alone

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
      // What is not sound changes nothing: factors of 1, and nothing to add. Choosing between
      // numbers is faster than choosing whether to store.
      const bool sound = !asks || std::abs(given) <= largest_gradient;
      const float grad = sound ? given : 0.0f;
      const float mean = (sound ? s.beta1 : 1.0f) * m[i] + s.weight1 * grad;
      const float square = (sound ? s.beta2 : 1.0f) * v[i] + s.weight2 * grad * grad;
      const R denom = std::sqrt(R(square)) * s.inverse_c2 + s.eps;
      const R change = s.step_size * R(mean) / denom;
      m[i] = mean;
      v[i] = square;
      m_largest.see(mean);
      v_largest.see(square);
      p[i] = T(R(p[i]) * (sound ? s.decay : R(1)) - (sound ? change : R(0)));
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

// The moments of one parameter.
struct Coded {
  const Tensor &exp_avg, &exp_avg_sq, &exp_avg_absmax, &exp_avg_sq_absmax;
  const Tensor &exp_avg_values, &exp_avg_sq_values;
};

// Every block of a parameter: reads and writes its codes, weights and gradients once.
template <class T, class Step>
int64_t step_blocks(const Update& u, const Coded& state, const MomentMaps& maps, int64_t block,
                    const Step& step) {
  T* p = u.parameter.data<T>();
  const T* g = u.gradient.data<T>();
  uint8_t *m_codes = state.exp_avg.data<uint8_t>(), *v_codes = state.exp_avg_sq.data<uint8_t>();
  float *m_absmax = state.exp_avg_absmax.data<float>(),
        *v_absmax = state.exp_avg_sq_absmax.data<float>();
  const float *m_values = state.exp_avg_values.data<float>(),
              *v_values = state.exp_avg_sq_values.data<float>();
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
      m_absmax[b] = quantize_block(m, m_largest, maps.exp_avg, is_last, m_codes + at, count);
      v_absmax[b] = quantize_block(v, v_largest, maps.exp_avg_sq, is_last, v_codes + at, count);
    }
    if (own_skipped > 0) skipped += own_skipped;
  });
  return skipped;
}

}  // namespace

MomentMaps moment_maps(std::string_view behaviour, std::string_view code_map) {
  const std::string_view name = behaviour == "minim" ? code_map : "bitsandbytes";
  return {optim::code_map(name, true), optim::code_map(name, false, behaviour != "bitsandbytes")};
}

template <bool adamw>
void BasicAdam8bitRule<adamw>::list_options(Options& options, OptionFields& fields) {
  fields("lr", options.lr);
  fields("beta1", options.beta1);
  fields("beta2", options.beta2);
  fields("eps", options.eps);
  fields("weight_decay", options.weight_decay);
  fields("block_size", options.block_size);
  fields("min_8bit_size", options.min_8bit_size);
  fields("keep_f32", options.keep_f32);
  fields("code_map", options.code_map);
  fields("behaviour", options.behaviour);
}

template <bool adamw>
void BasicAdam8bitRule<adamw>::list_state(State& state, const ParameterSpec& parameter,
                                          const Options& options, StateFields& fields) {
  if (keeps_f32(parameter, options.min_8bit_size, options.keep_f32)) {
    const DType dtype = state_dtype(parameter.dtype);
    fields("exp_avg", state.exp_avg, parameter.shape, dtype);
    fields("exp_avg_sq", state.exp_avg_sq, parameter.shape, dtype);
  } else {
    const Shape blocks = {blocks_of(parameter.shape.numel(), options.block_size)};
    fields("exp_avg", state.exp_avg, parameter.shape, DType::u8);
    fields("exp_avg_absmax", state.exp_avg_absmax, blocks, DType::f32);
    fields("exp_avg_sq", state.exp_avg_sq, parameter.shape, DType::u8);
    fields("exp_avg_sq_absmax", state.exp_avg_sq_absmax, blocks, DType::f32);
  }
  fields("step", state.step);
}

template <bool adamw>
void BasicAdam8bitRule<adamw>::validate(const Options& options) {
  check_not_negative(name, "lr", options.lr);
  check_beta(name, "beta1", options.beta1);
  check_beta(name, "beta2", options.beta2);
  check_not_negative(name, "eps", options.eps);
  check_not_negative(name, "weight_decay", options.weight_decay);
  check_block(name, options.block_size);
  check(options.min_8bit_size >= 0, "{}: min_8bit_size is {}, must not be negative", name,
        options.min_8bit_size);
  const auto names = code_map_names();
  check(std::ranges::count(names, options.code_map) > 0,
        "{}: code_map is \"{}\", must be dynamic, linear, fp8_e4m3 or fp8_e5m2", name,
        options.code_map);
  check(std::ranges::count(behaviours, options.behaviour) > 0,
        "{}: behaviour is \"{}\", must be minim, bitsandbytes or bitsandbytes_floor", name,
        options.behaviour);
  check(options.behaviour == "minim" || options.code_map == "dynamic",
        "{}: behaviour {} has a dynamic code map of its own, code_map is {}", name,
        options.behaviour, options.code_map);
}

template <bool adamw>
void BasicAdam8bitRule<adamw>::shared_state(StateFields& fields) {
  fields("exp_avg_values", exp_avg_values, {256}, DType::f32);
  fields("exp_avg_sq_values", exp_avg_sq_values, {256}, DType::f32);
}

template <bool adamw>
void BasicAdam8bitRule<adamw>::update(const Update& u, State& state, const Options& o) {
  if (state.exp_avg.dtype() != DType::u8) {
    AdamWRule::State full = {state.exp_avg, state.exp_avg_sq, {}, state.step};
    adam_update(u, full, {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, false, false}, true);
    state.step = full.step;
    return;
  }
  const MomentMaps code = moment_maps(o.behaviour, o.code_map);
  const std::string wanted = o.behaviour + " " + o.code_map;
  if (maps.empty()) {
    std::ranges::copy(code.exp_avg.values(), exp_avg_values.data<float>());
    std::ranges::copy(code.exp_avg_sq.values(), exp_avg_sq_values.data<float>());
    maps = wanted;
  }
  check(maps == wanted, "{}: groups have different codes, {} and {}; use an optimizer for each",
        name, maps, wanted);

  const double t = double(++state.step);
  const double c1 = 1.0 - std::pow(o.beta1, t), c2 = 1.0 - std::pow(o.beta2, t);
  const Coded coded = {state.exp_avg,           state.exp_avg_sq, state.exp_avg_absmax,
                       state.exp_avg_sq_absmax, exp_avg_values,   exp_avg_sq_values};
  dispatch_float(u.parameter.dtype(), name, [&]<class T>() {
    using R = Compute<T>;
    const BlockStep<T> step = {float(u.gradient_scale),
                               float(o.beta1),
                               float(1.0 - o.beta1),
                               float(o.beta2),
                               float(1.0 - o.beta2),
                               R(1.0 - o.lr * o.weight_decay),
                               R(o.lr / c1),
                               R(1.0 / std::sqrt(c2)),
                               R(o.eps),
                               o.behaviour == "minim"};
    state.skipped += step_blocks<T>(u, coded, code, o.block_size, step);
  });
}

template struct BasicAdam8bitRule<false>;
template struct BasicAdam8bitRule<true>;

}  // namespace minim::optim
