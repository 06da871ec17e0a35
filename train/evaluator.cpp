#include "train/evaluator.h"

#include <cmath>

#include "autograd/autocast.h"
#include "autograd/node.h"
#include "text/sampler.h"
#include "train/stopwatch.h"

namespace minim::train {

namespace {

// Switches a model to evaluation and back.
class EvalMode {
 public:
  explicit EvalMode(const nn::Module& model) : model_(model), before_(model.training()) {
    model_.eval();
  }
  ~EvalMode() { model_.train(before_); }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  const nn::Module& model_;
  bool before_;
};

}  // namespace

Evaluator::Evaluator(const Model& model, int64_t batch_size, ComputeMetrics compute_metrics,
                     std::optional<DType> autocast)
    : model_(model),
      batch_size_(batch_size),
      compute_metrics_(std::move(compute_metrics)),
      autocast_(autocast) {}

EvalPrediction Evaluator::predict(const text::Examples& set) const {
  const NoGrad no_grad;
  const EvalMode eval_mode(model_);
  const Autocast precision(autocast_);
  const auto rows = int64_t(set.sequences.size());
  const int64_t labels = model_.config.num_labels();
  const text::Sampler sampler(
      rows, {.batch_size = batch_size_, .strategy = text::SamplingStrategy::sequential});
  const memory::Scope data(memory::Category::data);
  const Tensor logits = Tensor::empty({rows, labels});
  int64_t done = 0;
  for (const std::vector<int64_t>& batch_rows : sampler.batches(0)) {
    const PackedBatch batch = text::pack(set, batch_rows).to(model_.device());
    const memory::Scope forward(memory::Category::activations);
    const Tensor part = model_.forward(batch);
    copy(logits.view(part.shape(), {labels, 1}, done * labels), part);
    done += part.size(0);
  }
  return {logits, set.labels};
}

Evaluation Evaluator::evaluate(const text::Examples& set) const {
  check(!set.sequences.empty(), "evaluate: there is no data");
  check(set.labels.defined(), "evaluate: the data has no labels");
  const Stopwatch watch;
  Evaluation evaluation;
  evaluation.prediction = predict(set);
  // In f64: a mean over the rows, not over means of batches.
  const Tensor logits = convert(evaluation.prediction.predictions, DType::f64);
  Metrics& metrics = evaluation.metrics;
  metrics.emplace_back("eval_loss", model_.loss(logits, set.labels).item());
  for (const auto& [name, value] : compute_metrics_(evaluation.prediction))
    metrics.emplace_back("eval_" + name, value);
  const double seconds = watch.seconds();
  const auto rows = double(set.sequences.size());
  metrics.emplace_back("eval_runtime", seconds);
  metrics.emplace_back("eval_samples_per_second", rows / seconds);
  metrics.emplace_back("eval_steps_per_second", std::ceil(rows / double(batch_size_)) / seconds);
  return evaluation;
}

}  // namespace minim::train
