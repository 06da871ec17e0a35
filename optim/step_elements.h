#pragma once

#include <initializer_list>

#include "core/launch.h"
#include "optim/optimizer.h"

#if defined(MINIM_WITH_CUDA)
#include "core/cuda/launch_list.h"
#endif

// The step of a rule that treats each weight by itself, written once as a formula:
//   static constexpr int states                      numbers kept of each weight, at most 3
//   HD R operator()(R p, R g, R* state) const        the new weight; writes state[0 .. states)
//   bool operator==(const Formula&) const = default
// and where it depends on the number of the step
//   HD Formula earlier(int64_t steps) const          the formula of an earlier one
// R is float, or double for f64 weights. It is for files in kernel_sources.
namespace minim::optim {

inline constexpr int most_states = 3;

// One weight of one step; reads everything once and writes it once.
template <class T, class Formula>
struct ElementStep {
  using R = Compute<T>;
  T* p;
  const T* g;
  R *first, *second, *third;  // the first Formula::states are used
  R gradient_scale;
  Formula formula;

  HD void operator()(int64_t i) const {
    constexpr int states = Formula::states;
    R own[most_states];
    if constexpr (states > 0) own[0] = first[i];
    if constexpr (states > 1) own[1] = second[i];
    if constexpr (states > 2) own[2] = third[i];
    p[i] = T(formula(R(p[i]), R(g[i]) * gradient_scale, own));
    if constexpr (states > 0) first[i] = own[0];
    if constexpr (states > 1) second[i] = own[1];
    if constexpr (states > 2) third[i] = own[2];
  }
};

#if defined(MINIM_WITH_CUDA)

// Four elements that are loaded and stored together.
template <class T>
struct alignas(sizeof(T) * 4 > 16 ? 16 : sizeof(T) * 4) Four {
  T at[4];
};

// The same for a device: a block of threads takes four thousand weights, a thread four at a time.
template <class T, class Formula>
struct ElementSteps {
  using R = Compute<T>;
  static constexpr int64_t elements = 4096;

  struct Tensors {
    T* p;
    const T* g;
    R* state[most_states];
    int64_t n;
    int64_t aligned;  // may all be read in fours?
    bool operator==(const Tensors&) const = default;
  };
  struct Numbers {
    Formula formula;
    double gradient_scale;
    const double* gradient_factor;
    const int64_t* left_out;  // steps among those counted that were not made, or null
    bool operator==(const Numbers&) const = default;

    HD Formula formula_now() const {
      if constexpr (requires { formula.earlier(*left_out); })
        if (left_out != nullptr && *left_out > 0) return formula.earlier(*left_out);
      return formula;
    }
  };
  Tensors tensors;
  Numbers numbers;

  template <class Group>
  HD void operator()(const Group& group, int64_t chunk) const {
    const Tensors& t = tensors;
    const double factor = numbers.gradient_factor != nullptr ? *numbers.gradient_factor : 1.0;
    const ElementStep<T, Formula> step{t.p,
                                       t.g,
                                       t.state[0],
                                       t.state[1],
                                       t.state[2],
                                       R(numbers.gradient_scale * factor),
                                       numbers.formula_now()};
    const int64_t begin = chunk * elements;
    const int64_t end = begin + elements < t.n ? begin + elements : t.n;
    const int64_t fours = t.aligned != 0 ? (end - begin) / 4 : 0;
    group.each(fours, [&](int64_t k) { step_four(step, begin + 4 * k); });
    const int64_t rest = begin + 4 * fours;
    group.each(end - rest, [&](int64_t k) { step(rest + k); });
  }

 private:
  template <class E>
  HD static Four<E> load(const E* from) {
    return *reinterpret_cast<const Four<E>*>(from);
  }
  template <class E>
  HD static void store(E* to, const Four<E>& four) {
    *reinterpret_cast<Four<E>*>(to) = four;
  }
  HD static void step_four(const ElementStep<T, Formula>& s, int64_t i) {
    constexpr int states = Formula::states;
    Four<T> p = load(s.p + i);
    const Four<T> g = load(s.g + i);
    Four<R> first, second, third;
    if constexpr (states > 0) first = load(s.first + i);
    if constexpr (states > 1) second = load(s.second + i);
    if constexpr (states > 2) third = load(s.third + i);
    for (int k = 0; k < 4; ++k) {
      R own[most_states];
      if constexpr (states > 0) own[0] = first.at[k];
      if constexpr (states > 1) own[1] = second.at[k];
      if constexpr (states > 2) own[2] = third.at[k];
      p.at[k] = T(s.formula(R(p.at[k]), R(g.at[k]) * s.gradient_scale, own));
      if constexpr (states > 0) first.at[k] = own[0];
      if constexpr (states > 1) second.at[k] = own[1];
      if constexpr (states > 2) third.at[k] = own[2];
    }
    store(s.p + i, p);
    if constexpr (states > 0) store(s.first + i, first);
    if constexpr (states > 1) store(s.second + i, second);
    if constexpr (states > 2) store(s.third + i, third);
  }
};

inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
}

#endif

// Steps all weights of a parameter of type T: now on the CPU; with the others, when the optimizer
// has asked for all, on a device. `scale` is what the gradient is multiplied by beside the factor
// that the device has; `state` has Formula::states tensors.
template <class T, class Formula>
void step_elements(const Update& u, double scale, const Formula& formula,
                   std::initializer_list<const Tensor*> state) {
  using R = Compute<T>;
  static_assert(Formula::states <= most_states);
  R* kept[most_states] = {};
  for (size_t k = 0; k < state.size(); ++k)
    kept[k] = state.begin()[k]->template data<R>();
  T* const p = u.parameter.data<T>();
  const T* const g = u.gradient.data<T>();
#if defined(MINIM_WITH_CUDA)
  if (u.launches != nullptr) {
    using Steps = ElementSteps<T, Formula>;
    const int64_t n = u.parameter.numel();
    bool aligned = is_aligned(p) && is_aligned(g);
    for (const R* one : kept)
      aligned = aligned && is_aligned(one);
    u.launches->add<Steps>(0, (n + Steps::elements - 1) / Steps::elements,
                           {p, g, {kept[0], kept[1], kept[2]}, n, aligned},
                           {formula, scale, u.gradient_factor, u.left_out});
    return;
  }
#endif
  launch_elements(u.parameter.device(), u.parameter.numel(),
                  ElementStep<T, Formula>{p, g, kept[0], kept[1], kept[2], R(scale), formula});
}

}  // namespace minim::optim
