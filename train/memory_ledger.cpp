#include "train/memory_ledger.h"

#include <algorithm>

#include <fmt/format.h>

#include "train/memory_plan.h"
#include "train/table.h"

namespace minim::train {

namespace {

models::BatchShape shape_of(const LargestBatch& batch) {
  return {batch.sequences, batch.tokens, batch.longest, batch.token_types};
}

}  // namespace

MemoryLedger::MemoryLedger(const nn::Module& model, const optim::StateSize& optimizer_state)
    : device(model.device()),
      predicted_optimizer_state(optimizer_state.bytes),
      optimizer_state_elements(optimizer_state.elements) {
  for (const NamedTensor& parameter : model.parameters()) {
    predicted_weights += parameter.tensor.bytes();
    parameters += parameter.tensor.numel();
    if (!parameter.tensor.requires_grad()) continue;
    predicted_gradients += parameter.tensor.bytes();
    trained_parameters += parameter.tensor.numel();
  }
}

MemoryLedger::MemoryLedger(const RunDescription& run, const TrainerState& state)
    : MemoryLedger(run.model, run.optimizer.state_size()) {
  if (state.largest_batch.tokens == 0 || trained_parameters == 0) return;
  if (device.is_cpu()) label_bytes = state.label_bytes;
  step = models::rehearse_step(
      run.model, shape_of(state.largest_batch),
      {.gradient_accumulation_steps = run.arguments.gradient_accumulation_steps,
       .autocast = run.arguments.autocast_dtype(device)});
  if (state.eval_rows > 0)
    evaluation =
        models::rehearse_evaluation(run.model, shape_of(state.largest_eval_batch), state.eval_rows,
                                    {.autocast = run.arguments.eval_autocast_dtype(device),
                                     .keeps_logits = state.eval_keeps_logits && device.is_cpu()});
  NamedTensors trained;
  for (const NamedTensor& parameter : run.model.parameters())
    if (parameter.tensor.requires_grad()) trained.push_back(parameter);
  const int64_t update = update_workspace(run.optimizer.name(), trained);
  int64_t beside = std::max(step->together, step->gradients + update);
  if (evaluation) beside = std::max(beside, evaluation->together);
  predicted_weights += std::max(step->casts, evaluation ? evaluation->casts : 0);
  predicted_peak = predicted_weights + predicted_optimizer_state + label_bytes + beside;
}

std::optional<int64_t> MemoryLedger::predicted(memory::Category category) const {
  using memory::Category;
  if (category == Category::weights) return predicted_weights;
  if (category == Category::gradients) return predicted_gradients;
  if (category == Category::optimizer_state) return predicted_optimizer_state;
  if (!step) return std::nullopt;
  const models::EvaluationMemory other = evaluation.value_or(models::EvaluationMemory());
  return category == Category::activations ? std::max(step->activations, other.activations)
         : category == Category::workspace ? std::max(step->workspace, other.workspace)
                                           : std::max(step->data, other.data) + label_bytes;
}

MeasuredMemory::MeasuredMemory(Device device) : peak(memory::peak(device)) {
  for (size_t c = 0; c < memory::categories; ++c)
    peaks[c] = memory::peak(memory::Category(c), device);
}

std::string ledger_table(const MemoryLedger& ledger, const MeasuredMemory& measured) {
  const auto mib = [](std::optional<int64_t> bytes) { return bytes ? in_mib(*bytes) : "-"; };
  Table table({"memory (MiB)", "predicted", "measured peak"});
  for (size_t c = 0; c < memory::categories; ++c) {
    const auto category = memory::Category(c);
    table.add({std::string(memory::name_of(category)), mib(ledger.predicted(category)),
               mib(measured.peaks[c])});
  }
  std::optional<int64_t> all;
  if (ledger.step) all = ledger.predicted_peak;
  table.add({"all at once", mib(all), mib(measured.peak)});
  return table.to_string();
}

}  // namespace minim::train
