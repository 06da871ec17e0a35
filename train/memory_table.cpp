#include "train/memory_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "train/table.h"

namespace minim::train {

namespace {

using nlohmann::ordered_json;

constexpr int bar_width = 24;
constexpr size_t shown_parts = 5;

std::string counted(int64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", with_commas(number), noun, number == 1 ? "" : "s");
}

// Left-aligned in a column of a Table, which aligns at the right.
std::string left(const std::string& text, size_t code_points, size_t width) {
  return text + std::string(width - std::min(width, code_points), ' ');
}

std::string bar_cell(int64_t bytes, int64_t largest) {
  const std::string blocks = bar(bytes, largest, bar_width);
  return left(blocks, blocks.size() / 3, bar_width);  // three bytes each
}

std::string label_of(const OptimizerChoice& choice) {
  return choice.optim_args.empty() ? choice.name : choice.name + " " + choice.optim_args;
}

std::string heading(const MemoryPlan& plan) {
  const models::DistilBertConfig& c = plan.config;
  std::string text =
      fmt::format("model       {}, {}, width {}, feed-forward {}, vocabulary {}, {}, {}\n",
                  counted(c.n_layers, "layer"), counted(c.n_heads, "head"), c.dim, c.hidden_dim,
                  with_commas(c.vocab_size), counted(c.max_position_embeddings, "position"),
                  counted(c.num_labels(), "label"));
  text += fmt::format("parameters  {} in {}", with_commas(plan.parameters),
                      counted(int64_t(plan.tensors.size()), "tensor"));
  if (plan.trained_parameters != plan.parameters)
    text += fmt::format(", {} of them trained", with_commas(plan.trained_parameters));
  text +=
      fmt::format("\nbatch       {}, {}, the longest of {}; {}",
                  counted(plan.batch.sequences, "sequence"), counted(plan.batch.tokens, "token"),
                  with_commas(plan.batch.longest), counted(plan.options.threads, "thread"));
  if (const int64_t n = plan.options.gradient_accumulation_steps; n > 1)
    text += fmt::format("; {} batches to an update", with_commas(n));
  if (plan.recomputes) text += "; gradient checkpointing";
  if (plan.options.autocast)
    text += fmt::format("; mixed precision {}", name_of(*plan.options.autocast));
  return text + "\n\n";
}

// What a step takes beside the optimizer's state, with its largest activations.
std::string step_table(const MemoryPlan& plan) {
  const models::StepMemory& step = plan.step;
  const std::string half =
      plan.options.autocast ? std::string(name_of(*plan.options.autocast)) : "";
  std::vector<std::string> explained;
  for (const models::MemoryPart& part : step.at_peak) {
    if (explained.size() == shown_parts) break;
    explained.push_back(counted(part.blocks, "tensor"));
    if (!part.kept_by.empty()) explained.back() += ", read by the backward of " + part.kept_by;
  }
  size_t widest = 32;  // of the explanations below
  for (const std::string& text : explained)
    widest = std::max(widest, text.size());
  const int64_t largest = std::max(step.weights, step.activations);
  Table table({"a training step", "MiB", left("", 0, bar_width), left("what it is", 10, widest)});
  const auto add = [&](const std::string& name, int64_t bytes, const std::string& what) {
    table.add({name, in_mib(bytes), bar_cell(bytes, largest), left(what, what.size(), widest)});
  };
  add("weights", step.weights, "all parameters, f32");
  if (step.casts > 0) add("weights in " + half, step.casts, "of linear layers, kept beside them");
  add("gradients", step.gradients, "of those that are trained, f32");
  add("activations", step.activations,
      "when there are most, f32" + (half.empty() ? half : " and " + half));
  int64_t others = step.activations;
  for (size_t i = 0; i < explained.size(); ++i) {
    const models::MemoryPart& part = step.at_peak[i];
    add("  " + part.what, part.bytes, explained[i]);
    others -= part.bytes;
  }
  if (others > 0) add("  others", others, "");
  add("workspace", step.workspace, "attention scores, per thread");
  add("batch", step.data, "ids, positions, labels");
  if (const auto& evaluation = plan.evaluation_memory) {
    add("evaluation", evaluation->activations,
        fmt::format("activations of {} at a time",
                    counted(plan.evaluation->batch.sequences, "sequence")));
    if (plan.options.keeps_logits)
      add("logits", evaluation->data,
          fmt::format("of {}, and a batch", counted(plan.evaluation->rows, "row")));
    else
      add("batch", evaluation->data, "of the evaluation");
  }
  return table.to_string();
}

std::string optimizer_table(const MemoryPlan& plan) {
  int64_t largest = 1;
  for (const OptimizerPlan& optimizer : plan.optimizers)
    largest = std::max(largest, optimizer.peak);
  Table table({"optimizer", "state elements", "state bytes", "state MiB", "peak MiB",
               left("peak of a step", 14, bar_width)});
  for (const OptimizerPlan& optimizer : plan.optimizers)
    table.add({label_of(optimizer.choice), with_commas(optimizer.state.elements_with_numbers()),
               with_commas(optimizer.state.bytes), in_mib(optimizer.state.bytes),
               in_mib(optimizer.peak), bar_cell(optimizer.peak, largest)});
  return table.to_string() +
         "\nState elements count step counters, as PyTorch's state_dict has them; the bytes are "
         "those of tensors.\nThe peak is that of weights, gradients, activations, workspace, batch "
         "and state together, which do\nnot have their own peaks at the same time" +
         (plan.evaluation ? "; or that of an evaluation, where it is more.\n" : ".\n");
}

// Bytes of each parameter's state.
std::unordered_map<std::string, int64_t> state_by_parameter(const OptimizerPlan& optimizer) {
  std::unordered_map<std::string, int64_t> bytes;
  for (const optim::StateSize::Entry& entry : optimizer.state.entries)
    bytes[entry.parameter] += entry.bytes;
  return bytes;
}

ordered_json optimizer_json(const OptimizerPlan& optimizer, bool by_tensor) {
  ordered_json object = {{"name", optimizer.choice.name},
                         {"optim_args", optimizer.choice.optim_args},
                         {"state_elements", optimizer.state.elements},
                         {"state_elements_with_numbers", optimizer.state.elements_with_numbers()},
                         {"state_bytes", optimizer.state.bytes},
                         {"update_workspace_bytes", optimizer.update_workspace},
                         {"peak_bytes", optimizer.peak}};
  if (!by_tensor) return object;
  for (const optim::StateSize::Entry& entry : optimizer.state.entries)
    object["state"].push_back({{"parameter", entry.parameter},
                               {"key", entry.key},
                               {"shape", std::vector(entry.shape.begin(), entry.shape.end())},
                               {"dtype", name_of(entry.dtype)},
                               {"bytes", entry.bytes}});
  return object;
}

}  // namespace

std::string bar(int64_t bytes, int64_t largest, int width) {
  constexpr std::array<std::string_view, 8> eighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  if (bytes <= 0 || largest <= 0) return "";
  // Something is never shown as nothing.
  const auto units = std::max<int64_t>(
      1, std::lround(8.0 * double(width) * double(std::min(bytes, largest)) / double(largest)));
  std::string text;
  for (int64_t i = 0; i < units / 8; ++i)
    text += "█";
  return text + std::string(eighths[size_t(units % 8)]);
}

std::string memory_table(const MemoryPlan& plan) {
  return heading(plan) + step_table(plan) + "\n" + optimizer_table(plan);
}

std::string memory_by_tensor(const MemoryPlan& plan) {
  std::vector<std::string> header = {"parameter", "shape", "weight KiB"};
  std::vector<std::unordered_map<std::string, int64_t>> states;
  for (const OptimizerPlan& optimizer : plan.optimizers) {
    header.push_back(label_of(optimizer.choice));
    states.push_back(state_by_parameter(optimizer));
  }
  const auto kib = [](int64_t bytes) { return fmt::format("{:.2f}", double(bytes) / 1024); };
  Table table(std::move(header));
  const auto add = [&](const std::string& name, const std::string& label, const std::string& shape,
                       const std::string& weight) {
    std::vector<std::string> row = {label, shape, weight};
    for (const auto& state : states) {
      const auto found = state.find(name);
      row.push_back(found == state.end() ? "" : kib(found->second));
    }
    table.add(std::move(row));
  };
  for (const MemoryPlan::Entry& entry : plan.tensors)
    add(entry.name, entry.name + (entry.trained ? "" : " (frozen)"), fmt::format("{}", entry.shape),
        kib(4 * entry.shape.numel()));
  const bool shares =
      std::ranges::any_of(states, [](const auto& state) { return state.contains(""); });
  if (shares) add("", "(shared by all)", "", "");
  return table.to_string();
}

std::string memory_json(const MemoryPlan& plan, const std::vector<OptionPlan>& options,
                        bool by_tensor) {
  const models::StepMemory& step = plan.step;
  ordered_json object = {{"config", ordered_json::parse(plan.config.to_json())},
                         {"parameters", plan.parameters},
                         {"trained_parameters", plan.trained_parameters},
                         {"tensors", plan.tensors.size()},
                         {"batch",
                          {{"sequences", plan.batch.sequences},
                           {"tokens", plan.batch.tokens},
                           {"longest", plan.batch.longest}}},
                         {"gradient_accumulation_steps", plan.options.gradient_accumulation_steps},
                         {"gradient_checkpointing", plan.recomputes},
                         {"precision", "fp32"},
                         {"threads", plan.options.threads},
                         {"weights_bytes", step.weights},
                         {"weight_casts_bytes", step.casts},
                         {"gradients_bytes", step.gradients},
                         {"activations_bytes", step.activations},
                         {"workspace_bytes", step.workspace},
                         {"batch_bytes", step.data},
                         {"peak_without_state_bytes", step.total()},
                         {"activations", ordered_json::array()},
                         {"optimizers", ordered_json::array()}};
  if (plan.options.autocast)
    object["precision"] = *plan.options.autocast == DType::bf16 ? "bf16" : "fp16";
  if (const auto& evaluation = plan.evaluation_memory)
    object["evaluation"] = {{"rows", plan.evaluation->rows},
                            {"sequences", plan.evaluation->batch.sequences},
                            {"activations_bytes", evaluation->activations},
                            {"workspace_bytes", evaluation->workspace},
                            {"data_bytes", evaluation->data},
                            {"weight_casts_bytes", evaluation->casts},
                            {"together_bytes", evaluation->together}};
  for (const OptionPlan& option : options)
    object["options"].push_back({{"option", option.option},
                                 {"weights_bytes", option.weights},
                                 {"activations_bytes", option.activations},
                                 {"peak_bytes", option.peak}});
  for (const models::MemoryPart& part : step.at_peak)
    object["activations"].push_back({{"what", part.what},
                                     {"read_by_backward_of", part.kept_by},
                                     {"tensors", part.blocks},
                                     {"bytes", part.bytes}});
  for (const OptimizerPlan& optimizer : plan.optimizers)
    object["optimizers"].push_back(optimizer_json(optimizer, by_tensor));
  if (by_tensor)
    for (const MemoryPlan::Entry& entry : plan.tensors)
      object["parameters_by_name"].push_back(
          {{"name", entry.name},
           {"shape", std::vector(entry.shape.begin(), entry.shape.end())},
           {"trained", entry.trained},
           {"bytes", 4 * entry.shape.numel()}});
  return object.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace minim::train
