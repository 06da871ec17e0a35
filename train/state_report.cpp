#include "train/state_report.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "train/sparkline.h"
#include "train/state_view.h"
#include "train/table.h"

namespace minim::train {

namespace {

using optim::SavedState;

std::string bytes_text(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  if (bytes < 1 << 20) return fmt::format("{:.1f} KiB", double(bytes) / 0x1p10);
  return fmt::format("{:.2f} MiB", double(bytes) / 0x1p20);
}

// Four digits; whole numbers, such as step counters, in full.
std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 0x1p53) return std::to_string(int64_t(value));
  return fmt::format("{:.4g}", value);
}

double step_of(const SavedState::Parameter& parameter) {
  for (const auto& [key, value] : parameter.numbers)
    if (key == "step") return value;
  return 0;
}

std::string options_text(const SavedState& state, size_t group) {
  std::string text;
  for (const auto& [key, value] : state.groups()[group].options)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, value.empty() ? "\"\"" : value);
  return text;
}

// Keys of all tensors, each once, in the order in which they are met.
std::vector<std::string> keys_of(const SavedState& state) {
  std::vector<std::string> keys;
  for (const SavedState::Parameter& parameter : state.parameters())
    for (const optim::StateSize::Entry& tensor : parameter.tensors)
      if (std::ranges::find(keys, tensor.key) == keys.end()) keys.push_back(tensor.key);
  return keys;
}

std::string heading(const SavedState& state) {
  std::vector<double> steps;
  for (const SavedState::Parameter& parameter : state.parameters())
    steps.push_back(step_of(parameter));
  std::string step = "no parameters";
  if (!steps.empty()) {
    const auto [least, most] = std::ranges::minmax_element(steps);
    step = *least == *most ? fmt::format("step {}", *most)
                           : fmt::format("steps {} to {}", *least, *most);
  }
  std::string text = fmt::format("{}: {}, {} parameters, {}\n", state.path(), state.optimizer(),
                                 state.parameters().size(), step);
  for (size_t g = 0; g < state.groups().size(); ++g)
    text += fmt::format("group {}: {} parameters; {}\n", g, state.groups()[g].parameters.size(),
                        options_text(state, g));
  return text;
}

std::string totals(const SavedState& state) {
  struct Kind {
    std::string key;
    DType dtype;
    int64_t tensors = 0, elements = 0, bytes = 0;
  };
  std::vector<Kind> kinds;
  for (const optim::StateSize::Entry& entry : state.size().entries) {
    const std::string key = entry.parameter.empty() ? entry.key + " (shared)" : entry.key;
    auto kind = std::ranges::find_if(
        kinds, [&](const Kind& k) { return k.key == key && k.dtype == entry.dtype; });
    if (kind == kinds.end()) kind = kinds.insert(kinds.end(), {.key = key, .dtype = entry.dtype});
    ++kind->tensors;
    kind->elements += entry.elements;
    kind->bytes += entry.bytes;
  }
  Table table({"kind", "dtype", "tensors", "elements", "bytes", ""});
  for (const Kind& kind : kinds)
    table.add({kind.key, std::string(name_of(kind.dtype)), with_commas(kind.tensors),
               with_commas(kind.elements), with_commas(kind.bytes), bytes_text(kind.bytes)});
  const optim::StateSize& size = state.size();
  table.add({"in all", "", with_commas(int64_t(size.entries.size())), with_commas(size.elements),
             with_commas(size.bytes), bytes_text(size.bytes)});
  return table.to_string() +
         fmt::format("{} elements with the {} step counters and other single numbers\n",
                     with_commas(size.elements_with_numbers()), with_commas(size.numbers));
}

void print_values(const Tensor& tensor, const std::vector<double>& values, int dim, int64_t offset,
                  std::string& text) {
  if (dim == tensor.rank()) {
    text += fmt::format("{: .4e}", values[size_t(offset)]);
    return;
  }
  const int64_t n = tensor.size(dim);
  int64_t stride = 1;
  for (int d = dim + 1; d < tensor.rank(); ++d)
    stride *= tensor.size(d);
  const bool innermost = dim + 1 == tensor.rank();
  const std::string between = innermost ? ", " : ",\n" + std::string(size_t(dim) + 1, ' ');
  text += "[";
  for (int64_t i = 0; i < n; ++i) {
    if (i > 0) text += between;
    if (n > 6 && i == 3) {
      text += "..." + between;
      i = n - 3;
    }
    print_values(tensor, values, dim + 1, offset + i * stride, text);
  }
  text += "]";
}

std::string indented(const std::string& text) {
  std::string lines = "  ";
  for (const char c : text)
    lines += c == '\n' ? std::string("\n  ") : std::string(1, c);
  return lines + "\n";
}

std::string codes_text(const CodesView& codes, const optim::Summary& summary) {
  const auto of_rms = [&](double error) {
    return summary.rms > 0 ? fmt::format(" ({:.3g} % of the rms)", 100 * error / summary.rms) : "";
  };
  std::string text = fmt::format(
      "  codes: {} of 256 in use; {:.1f} % of the elements have the one for {:.4g} of the scale\n",
      codes.used, 100 * codes.commonest_share, codes.commonest_value);
  text += fmt::format("  scales of {} blocks of {}: least {}, median {}, largest {}\n",
                      with_commas(codes.blocks), codes.block, number_text(codes.least_scale),
                      number_text(codes.median_scale), number_text(codes.largest_scale));
  std::vector<double> worst = codes.error.worst;
  std::ranges::sort(worst);
  if (worst.empty()) return text;
  text += fmt::format(
      "  error: at most {}{} in the worst block, {} in the median block; {}{} rms if evenly "
      "spread\n"
      "         (half the gap between neighbouring codes, times the scale of the block; the "
      "numbers before coding are gone)\n",
      number_text(worst.back()), of_rms(worst.back()), number_text(worst[worst.size() / 2]),
      number_text(codes.error.rms), of_rms(codes.error.rms));
  return text;
}

std::string view_text(const TensorView& view) {
  const optim::Summary& s = view.summary;
  std::string text =
      fmt::format("{}  {} {}, {} elements, {}\n", view.key, name_of(view.dtype),
                  view.values.shape(), with_commas(s.elements),
                  view.is_stored ? bytes_text(view.bytes) : "not kept: row * column / mean(row)");
  const double share = s.elements > 0 ? 100.0 * double(s.zeros) / double(s.elements) : 0;
  text += fmt::format("  min {}  mean {}  max {}  rms {}  zeros {:.1f} %\n", number_text(s.min),
                      number_text(s.mean), number_text(s.max), number_text(s.rms), share);
  if (s.not_finite > 0)
    text += fmt::format("  {} elements are not finite\n", with_commas(s.not_finite));
  const optim::Histogram& h = view.histogram;
  text += fmt::format("  {} |{}| {}{}\n", number_text(h.low), bars(h.counts), number_text(h.high),
                      h.logarithmic ? " (powers of ten)" : "");
  if (view.codes) text += codes_text(*view.codes, s);
  return text + indented(printed_values(view.values));
}

}  // namespace

std::string printed_values(const Tensor& tensor) {
  std::string text;
  print_values(tensor, tensor.to_vector<double>(), 0, 0, text);
  return text;
}

std::string state_table(const SavedState& state) {
  const std::vector<std::string> keys = keys_of(state);
  std::vector<std::string> header = {"parameter", "shape", "step"};
  header.insert(header.end(), keys.begin(), keys.end());
  header.insert(header.end(), {"elements", "bytes"});
  Table table(header);
  for (const SavedState::Parameter& parameter : state.parameters()) {
    std::vector<std::string> row = {parameter.name,
                                    parameter.shape ? fmt::format("{}", *parameter.shape) : "-",
                                    fmt::format("{}", step_of(parameter))};
    std::map<std::string, std::string> cells;
    int64_t elements = 0, bytes = 0;
    for (const optim::StateSize::Entry& tensor : parameter.tensors) {
      std::string& cell = cells[tensor.key];
      cell = name_of(tensor.dtype);
      if (tensor.shape != parameter.shape) cell += fmt::format(" {}", tensor.shape);
      elements += tensor.elements;
      bytes += tensor.bytes;
    }
    for (const std::string& key : keys)
      row.push_back(cells[key]);
    row.insert(row.end(), {with_commas(elements), with_commas(bytes)});
    table.add(std::move(row));
  }
  return fmt::format("{}\n{}\n{}", heading(state), table.to_string(), totals(state));
}

std::string parameter_report(const SavedState& state, const SavedState::Parameter& parameter) {
  std::string text = fmt::format("{} {}\n", parameter.name,
                                 parameter.shape ? fmt::format("{}", *parameter.shape) : "");
  text += fmt::format("{}; {}\n", state.optimizer(), options_text(state, parameter.group));
  std::string numbers;
  for (const auto& [key, value] : parameter.numbers)
    numbers += fmt::format("{}{} {}", numbers.empty() ? "" : ", ", key, number_text(value));
  text += numbers.empty() ? "no state: it has had no gradient\n" : numbers + "\n";
  for (const TensorView& view : view_state(state, parameter))
    text += "\n" + view_text(view);
  return text;
}

}  // namespace minim::train
