#include "train/memory_options.h"

#include <algorithm>

#include <fmt/format.h>

#include "train/table.h"

namespace minim::train {

namespace {

using Model = models::DistilBertForSequenceClassification;

constexpr const char* embeddings = "distilbert.embeddings.*";

// Whether training has these parameters among others.
bool can_freeze_embeddings(const MemoryPlan& plan) {
  bool some = false, others = false;
  for (const MemoryPlan::Entry& entry : plan.tensors) {
    const bool inside = entry.name.starts_with("distilbert.embeddings.");
    some = some || (inside && entry.trained);
    others = others || (!inside && entry.trained);
  }
  return some && others;
}

// A model without weights, frozen and recomputing as the other.
Model same_without_weights(const Model& model) {
  Model same = models::model_without_weights(model.config);
  const NamedTensors parameters = model.parameters();
  NamedTensors ours = same.parameters();
  for (size_t i = 0; i < ours.size(); ++i)
    ours[i].tensor.set_requires_grad(parameters[i].tensor.requires_grad());
  if (model.is_gradient_checkpointing()) same.gradient_checkpointing_enable();
  return same;
}

}  // namespace

std::vector<OptionPlan> plan_options(const Model& model, const MemoryPlan& plan) {
  std::vector<OptionPlan> all;
  const OptimizerChoice& optimizer = plan.optimizers.at(0).choice;
  const auto add = [&](std::string option, const Model& changed, const models::BatchShape& batch,
                       const models::StepOptions& options) {
    const MemoryPlan with = plan_memory(changed, batch, {optimizer}, options, plan.evaluation);
    all.push_back({std::move(option), with.step.weights + with.step.casts, with.step.activations,
                   with.optimizers[0].peak});
  };
  add("", model, plan.batch, plan.options);
  if (!model.is_gradient_checkpointing() && model.config.n_layers > 1) {
    Model recomputes = same_without_weights(model);
    recomputes.gradient_checkpointing_enable();
    add("--gradient-checkpointing", recomputes, plan.batch, plan.options);
  }
  const models::BatchShape& batch = plan.batch;
  if (batch.sequences % 2 == 0 && batch.tokens == batch.sequences * batch.longest) {
    models::StepOptions more = plan.options;
    more.gradient_accumulation_steps *= 2;
    models::BatchShape half = models::BatchShape::uniform(batch.sequences / 2, batch.longest);
    half.token_types = batch.token_types;
    add(fmt::format("--per-device-train-batch-size {} --gradient-accumulation-steps {}",
                    half.sequences, more.gradient_accumulation_steps),
        model, half, more);
  }
  if (!plan.options.autocast) {
    models::StepOptions mixed = plan.options;
    mixed.autocast = DType::bf16;
    add("--precision bf16", model, batch, mixed);
  }
  if (can_freeze_embeddings(plan)) {
    const Model frozen = same_without_weights(model);
    frozen.freeze(embeddings);
    add(fmt::format("--freeze '{}'", embeddings), frozen, batch, plan.options);
  }
  return all;
}

std::string options_table(const std::vector<OptionPlan>& options, const MemoryPlan& plan) {
  size_t widest = 0;
  for (const OptionPlan& option : options)
    widest = std::max(widest, option.option.size());
  const auto left = [&](std::string text) {
    text.resize(std::max(widest, text.size()), ' ');
    return text;
  };
  Table table({left("one option more"), "weights MiB", "activations MiB", "peak MiB", "change"});
  for (const OptionPlan& option : options)
    table.add({left(option.option.empty() ? "as above" : option.option), in_mib(option.weights),
               in_mib(option.activations), in_mib(option.peak),
               option.option.empty()
                   ? ""
                   : fmt::format("{:+.2f}", double(option.peak - options[0].peak) / 0x1p20)});
  return table.to_string() +
         fmt::format(
             "\nThe peak is that under {}. Mixed precision keeps the linear layers' parameters in "
             "16 bits\nbeside those in f32, and the CPU widens its factors for each product.\n",
             plan.optimizers.at(0).choice.name);
}

std::vector<std::string> arguments_that_save(const Model& model, const models::BatchShape& batch,
                                             const models::StepOptions& options) {
  if (model.is_gradient_checkpointing()) return {};
  Model recomputes = model;  // shares the parameters
  recomputes.gradient_checkpointing_enable();
  const int64_t now = models::rehearse_step(model, batch, options).together;
  const int64_t then = models::rehearse_step(recomputes, batch, options).together;
  if (then >= now) return {};
  return {"gradient_checkpointing"};
}

}  // namespace minim::train
