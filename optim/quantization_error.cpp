#include "optim/quantization_error.h"

#include <algorithm>
#include <cmath>

namespace minim::optim {

namespace {

// Codes that numbers get, by ascending value.
std::vector<uint8_t> used_codes(const CodeMap& map) {
  std::vector<uint8_t> codes;
  const bool signs = map.rules().order == CodeMap::Order::sign_magnitude;
  for (int code = 0; code < 256; ++code)
    if ((signs ? code & 0x7F : code) <= map.rules().last) codes.push_back(uint8_t(code));
  std::ranges::stable_sort(codes, {}, [&](uint8_t code) { return map.value(code); });
  return codes;
}

// Calls use(block, scale, begin, end) for each block.
template <class Use>
void for_each_block(const Quantized& quantized, const Use& use) {
  const auto scales = quantized.absmax.values<float>();
  const int64_t n = quantized.codes.numel();
  for (size_t b = 0; b < scales.size(); ++b) {
    const int64_t begin = int64_t(b) * quantized.block;
    use(b, double(scales[b]), begin, std::min(begin + quantized.block, n));
  }
}

}  // namespace

double QuantizationError::largest() const {
  return worst.empty() ? 0 : *std::ranges::max_element(worst);
}

std::array<CodeReach, 256> code_reach(const CodeMap& map) {
  const std::vector<uint8_t> codes = used_codes(map);
  const bool is_signed = map.value(codes.front()) < 0;
  constexpr double rounding = 0x1p-24;
  std::array<CodeReach, 256> reach{};
  double boundary = is_signed ? -1 : 0;
  for (size_t i = 0; i < codes.size(); ++i) {
    const double value = map.value(codes[i]);
    const auto slack = [&](double end) {
      return end == value ? 0 : rounding * (std::abs(end) + std::abs(value));
    };
    reach[codes[i]].below = std::max(value - boundary, 0.0) + slack(boundary);
    boundary = 1;
    if (i + 1 < codes.size()) {
      const double next = map.value(codes[i + 1]);
      // Under the floor rule every positive number lies above the code of zero.
      const bool floor = map.rules().floor && value == 0 && next > 0;
      boundary = floor ? 0 : double(float((value + next) / 2));
    }
    reach[codes[i]].above = std::max(boundary - value, 0.0) + slack(boundary);
  }
  return reach;
}

QuantizationError quantization_error_bound(const Quantized& quantized, const CodeMap& map) {
  const std::array<CodeReach, 256> reach = code_reach(map);
  std::array<double, 256> worst{}, square{};
  for (size_t c = 0; c < 256; ++c) {
    const auto [below, above] = reach[c];
    worst[c] = std::max(below, above);
    // The mean of x^2 over x from -below to above.
    const double width = below + above;
    square[c] = width > 0 ? (std::pow(above, 3) + std::pow(below, 3)) / (3 * width) : 0;
  }
  const auto codes = quantized.codes.values<uint8_t>();
  QuantizationError error;
  error.worst.resize(size_t(quantized.absmax.numel()));
  double total = 0;
  for_each_block(quantized, [&](size_t block, double scale, int64_t begin, int64_t end) {
    if (!std::isfinite(scale)) return;
    double most = 0, sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      most = std::max(most, worst[codes[size_t(i)]]);
      sum += square[codes[size_t(i)]];
    }
    error.worst[block] = most * scale;
    total += sum * scale * scale;
  });
  if (!codes.empty()) error.rms = std::sqrt(total / double(codes.size()));
  return error;
}

QuantizationError quantization_error(const Tensor& exact, const Quantized& quantized,
                                     const CodeMap& map) {
  check(exact.shape() == quantized.codes.shape(),
        "quantization_error: numbers of shape {} for codes of {}", exact.shape(),
        quantized.codes.shape());
  const std::vector<double> numbers = exact.to_vector<double>();
  const Tensor decoded = dequantize_blockwise(quantized, map);
  const auto values = decoded.values<float>();
  QuantizationError error;
  error.worst.resize(size_t(quantized.absmax.numel()));
  double total = 0;
  for_each_block(quantized, [&](size_t block, double, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double off = std::abs(numbers[size_t(i)] - double(values[size_t(i)]));
      error.worst[block] = std::max(error.worst[block], off);
      total += off * off;
    }
  });
  if (!numbers.empty()) error.rms = std::sqrt(total / double(numbers.size()));
  return error;
}

}  // namespace minim::optim
