#include "train/state_view.h"

#include <algorithm>
#include <array>

namespace minim::train {

namespace {

using optim::SavedState;

constexpr int bins = 32;

CodesView view_codes(const optim::Quantized& quantized, const optim::CodeMap& map) {
  CodesView view{.block = quantized.block, .blocks = quantized.absmax.numel()};
  std::array<int64_t, 256> counts{};
  for (const uint8_t code : quantized.codes.values<uint8_t>())
    ++counts[code];
  view.used = int(std::ranges::count_if(counts, [](int64_t count) { return count > 0; }));
  const auto commonest = std::ranges::max_element(counts) - counts.begin();
  view.commonest_value = map.value(uint8_t(commonest));
  if (quantized.codes.numel() > 0)
    view.commonest_share = double(counts[size_t(commonest)]) / double(quantized.codes.numel());
  std::vector<float> scales = quantized.absmax.to_vector<float>();
  std::ranges::sort(scales);
  if (!scales.empty()) {
    view.least_scale = scales.front();
    view.median_scale = scales[scales.size() / 2];
    view.largest_scale = scales.back();
  }
  view.error = optim::quantization_error_bound(quantized, map);
  return view;
}

void add_values(TensorView& view, const Tensor& values) {
  view.values = values;
  view.summary = optim::summarize(values);
  view.histogram = optim::histogram(values, bins);
}

}  // namespace

std::vector<TensorView> view_state(const SavedState& state,
                                   const SavedState::Parameter& parameter) {
  std::vector<TensorView> views;
  for (const optim::StateSize::Entry& entry : parameter.tensors) {
    constexpr std::string_view ending = "_absmax";
    const std::string_view key = entry.key;
    if (key.ends_with(ending) &&
        state.is_quantized(parameter, key.substr(0, key.size() - ending.size())))
      continue;
    TensorView& view = views.emplace_back(
        TensorView{.key = entry.key, .dtype = entry.dtype, .bytes = entry.bytes});
    if (state.is_quantized(parameter, key)) {
      const optim::Quantized quantized = state.quantized(parameter, key);
      view.codes = view_codes(quantized, state.code_map_of(parameter, key));
      view.bytes += quantized.absmax.bytes();
    }
    add_values(view, state.values(parameter, key));
  }
  if (const Tensor second = state.factored_second_moment(parameter); second.defined()) {
    views.push_back({.key = "exp_avg_sq", .dtype = second.dtype(), .is_stored = false});
    add_values(views.back(), second);
  }
  return views;
}

}  // namespace minim::train
