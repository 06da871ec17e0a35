#include "train/memory_plan.h"

#include <algorithm>

#include "core/parallel.h"

namespace minim::train {

namespace {

// Sums that Adafactor's update of one parameter works with: of squares and of columns, per tile of
// a matrix (optim/adafactor_update.cpp). Other rules need nothing.
int64_t workspace_of_update(std::string_view rule, const Shape& shape) {
  if (!rule.starts_with("adafactor") || shape.numel() == 0) return 0;
  const int rank = shape.rank();
  if (rank < 2) return 2 * 8 * ((shape.numel() + element_grain - 1) / element_grain);
  const int64_t rows = shape[rank - 2], columns = shape[rank - 1];
  const int64_t height = std::max({int64_t(1), element_grain / columns, (rows + 63) / 64});
  const int64_t matrices = shape.numel() / (rows * columns);
  const int64_t tiles = matrices * ((rows + height - 1) / height);
  return 8 * tiles + 4 * (matrices * columns + tiles * columns + matrices);
}

OptimizerPlan plan_optimizer(const OptimizerChoice& choice, const NamedTensors& trained,
                             const MemoryPlan& of) {
  const models::StepMemory& step = of.step;
  const auto optimizer = optim::make_optimizer(choice.name, optim::decay_groups(trained, 0.0),
                                               {.optim_args = choice.optim_args});
  OptimizerPlan plan{.choice = choice, .state = optimizer->state_size()};
  plan.update_workspace = update_workspace(optimizer->name(), trained);
  plan.peak = step.weights + step.casts + plan.state.bytes +
              std::max(step.together, step.gradients + plan.update_workspace);
  if (const auto& evaluation = of.evaluation_memory)
    plan.peak = std::max(plan.peak, step.weights + std::max(step.casts, evaluation->casts) +
                                        plan.state.bytes + evaluation->together);
  return plan;
}

}  // namespace

int64_t update_workspace(std::string_view optimizer, const NamedTensors& trained) {
  int64_t most = 0;
  for (const NamedTensor& parameter : trained)
    most = std::max(most, workspace_of_update(optimizer, parameter.tensor.shape()));
  return most;
}

std::vector<OptimizerChoice> all_optimizers() {
  std::vector<OptimizerChoice> choices;
  for (const std::string_view name : optim::optimizer_names()) {
    choices.push_back({std::string(name), ""});
    if (name.ends_with("8bit")) choices.push_back({std::string(name), "keep_f32=embeddings"});
  }
  return choices;
}

MemoryPlan plan_memory(const models::DistilBertForSequenceClassification& model,
                       const models::BatchShape& batch,
                       const std::vector<OptimizerChoice>& optimizers,
                       const models::StepOptions& options,
                       const std::optional<EvaluationShape>& evaluation) {
  MemoryPlan plan;
  plan.config = model.config;
  plan.batch = batch;
  plan.options = options;
  plan.step = models::rehearse_step(model, batch, options);
  plan.evaluation = evaluation;
  if (evaluation)
    plan.evaluation_memory =
        models::rehearse_evaluation(model, evaluation->batch, evaluation->rows, options);
  plan.recomputes = model.is_gradient_checkpointing();
  NamedTensors trained;
  for (const NamedTensor& parameter : model.parameters()) {
    const bool is_trained = parameter.tensor.requires_grad();
    plan.tensors.push_back({parameter.name, parameter.tensor.shape(), is_trained});
    plan.parameters += parameter.tensor.numel();
    if (!is_trained) continue;
    plan.trained_parameters += parameter.tensor.numel();
    trained.push_back(parameter);
  }
  for (const OptimizerChoice& choice : optimizers)
    plan.optimizers.push_back(plan_optimizer(choice, trained, plan));
  return plan;
}

MemoryPlan plan_memory(const models::DistilBertConfig& config, const models::BatchShape& batch,
                       const std::vector<OptimizerChoice>& optimizers,
                       const models::StepOptions& options,
                       const std::optional<EvaluationShape>& evaluation) {
  return plan_memory(models::model_without_weights(config), batch, optimizers, options, evaluation);
}

}  // namespace minim::train
