#include "optim/adam8bit.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "optim/adam8bit_update.h"
#include "optim/adam_update.h"
#include "optim/option_checks.h"
#include "optim/quantize.h"

namespace minim::optim {

namespace {

constexpr std::string_view behaviours[] = {"minim", "bitsandbytes", "bitsandbytes_floor"};

bool keeps_f32(const ParameterSpec& parameter, int64_t min_8bit_size, std::string_view names) {
  if (parameter.shape.numel() < min_8bit_size) return true;
  while (!names.empty()) {
    const std::string_view part = names.substr(0, names.find('|'));
    if (!part.empty() && parameter.name.find(part) != std::string::npos) return true;
    names.remove_prefix(std::min(part.size() + 1, names.size()));
  }
  return false;
}

Tensor value_table(const CodeMap& map) {
  return Tensor::from(std::span<const float>(map.values()), {256});
}

// The entries of a map's search, for a device.
Tensor search_table(const CodeMap& map, Device device) {
  const memory::Scope scope(memory::Category::workspace);
  const Tensor entries = Tensor::empty({int64_t(1) << 16}, DType::i32);
  std::memcpy(entries.raw(), map.search(), size_t(entries.bytes()));
  return entries.to(device);
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
    copy(exp_avg_values, value_table(code.exp_avg));
    copy(exp_avg_sq_values, value_table(code.exp_avg_sq));
    maps = wanted;
  }
  check(maps == wanted, "{}: groups have different codes, {} and {}; use an optimizer for each",
        name, maps, wanted);
  if (u.launches != nullptr && !exp_avg_search.defined()) {
    exp_avg_search = search_table(code.exp_avg, u.parameter.device());
    exp_avg_sq_search = search_table(code.exp_avg_sq, u.parameter.device());
  }
  if (u.launches != nullptr && !state.skipped_there.defined()) {
    const memory::Scope scope(memory::Category::workspace);
    state.skipped_there = Tensor::zeros({1}, DType::i64, u.parameter.device());
  }

  ++state.step;
  state.skipped += adam8bit_update(
      u, {state.exp_avg, state.exp_avg_absmax, exp_avg_values, exp_avg_search, code.exp_avg},
      {state.exp_avg_sq, state.exp_avg_sq_absmax, exp_avg_sq_values, exp_avg_sq_search,
       code.exp_avg_sq},
      {.block = o.block_size,
       .corrections = {o.lr, o.beta1, o.beta2, state.step},
       .decay = 1.0 - o.lr * o.weight_decay,
       .eps = o.eps,
       .guarded = o.behaviour == "minim",
       .skipped = state.skipped_there});
}

template <bool adamw>
void BasicAdam8bitRule<adamw>::fetch(State& state) {
  if (state.skipped_there.defined()) state.skipped = int64_t(state.skipped_there.item());
}

template struct BasicAdam8bitRule<false>;
template struct BasicAdam8bitRule<true>;

}  // namespace minim::optim
