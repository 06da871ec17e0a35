#include "optim/moments.h"

#include <charconv>
#include <map>
#include <string>

#include "optim/adam8bit.h"
#include "optim/quantize.h"

namespace minim::optim {

namespace {

using Options = std::map<std::string, std::string>;

// The options under which a parameter is updated.
Options options_for(const AnyOptimizer& optimizer, std::string_view parameter) {
  for (size_t g = 0; g < optimizer.groups().size(); ++g)
    for (const NamedTensor& own : optimizer.groups()[g].parameters)
      if (own.name == parameter) {
        const auto options = optimizer.options_of(g);
        return {options.begin(), options.end()};
      }
  return {};
}

int64_t block_of(const Options& options) {
  const std::string& text = options.at("block_size");
  int64_t block = 0;
  std::from_chars(text.data(), text.data() + text.size(), block);
  return block;
}

MomentMaps maps_of(const Options& options) {
  return moment_maps(options.at("behaviour"), options.at("code_map"));
}

void check_kind(const AnyOptimizer& optimizer) {
  const std::string_view name = optimizer.name();
  check(name == "adam" || name == "adamw" || name == "adam8bit" || name == "adamw8bit",
        "moments: {} does not keep Adam's two", name);
}

void check_no_amsgrad(const AnyOptimizer& optimizer) {
  for (size_t g = 0; g < optimizer.groups().size(); ++g)
    for (const auto& [key, value] : optimizer.options_of(g))
      check(key != "amsgrad" || value == "false",
            "moments: {} with amsgrad keeps a third, which cannot be copied", optimizer.name());
}

}  // namespace

Moments moments_of(const AnyOptimizer& optimizer, std::string_view parameter) {
  check_kind(optimizer);
  std::map<std::string, Tensor> state;
  for (NamedTensor& entry : optimizer.state_dict(parameter))
    state.emplace(std::move(entry.name), std::move(entry.tensor));
  if (state.empty()) return {};
  Moments moments = {state.at("exp_avg"), state.at("exp_avg_sq"),
                     state.at("step").data<int64_t>()[0]};
  if (moments.exp_avg.dtype() == DType::u8) {
    const Options options = options_for(optimizer, parameter);
    const MomentMaps maps = maps_of(options);
    const int64_t block = block_of(options);
    moments.exp_avg =
        dequantize_blockwise({moments.exp_avg, state.at("exp_avg_absmax"), block}, maps.exp_avg);
    moments.exp_avg_sq = dequantize_blockwise(
        {moments.exp_avg_sq, state.at("exp_avg_sq_absmax"), block}, maps.exp_avg_sq);
  }
  return moments;
}

void copy_moments(const AnyOptimizer& from, AnyOptimizer& to) {
  check_kind(to);
  check_no_amsgrad(from);
  check_no_amsgrad(to);
  const memory::Scope scope(memory::Category::data);
  NamedTensors state;
  std::string seen;
  Moments moments;
  // Entries of a parameter follow one another. Frozen parameters have none, and need none.
  for (const StateSize::Entry& entry : to.state_size().entries) {
    if (entry.parameter.empty() || entry.key.ends_with("_absmax")) continue;
    if (entry.parameter != seen) {
      seen = entry.parameter;
      moments = moments_of(from, seen);
      if (moments.exp_avg.defined())
        state.push_back({seen + ".step", Tensor::from({moments.step}, {})});
    }
    const bool first = entry.key == "exp_avg";
    const Tensor& moment = first ? moments.exp_avg : moments.exp_avg_sq;
    if (!moment.defined()) continue;
    const std::string name = entry.parameter + "." + entry.key;
    if (entry.dtype != DType::u8) {
      state.push_back({name, convert(moment, entry.dtype)});
      continue;
    }
    const Options options = options_for(to, entry.parameter);
    const MomentMaps maps = maps_of(options);
    const Quantized q =
        quantize_blockwise(moment, first ? maps.exp_avg : maps.exp_avg_sq, block_of(options));
    state.push_back({name, q.codes});
    state.push_back({name + "_absmax", q.absmax});
  }
  to.load_state_dict(state, to.metadata());
}

}  // namespace minim::optim
