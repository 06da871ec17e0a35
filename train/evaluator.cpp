#include "train/evaluator.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "autograd/autocast.h"
#include "autograd/node.h"
#include "core/printable.h"
#include "text/sampler.h"
#include "train/data_loader.h"
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

// The mean over rows, from the means over batches.
class MeanLoss {
 public:
  void add(double mean, int64_t rows) {
    if (rows == 0) return;  // rows without a label alone, whose mean is none
    sum_ += mean * double(rows);
    rows_ += rows;
  }
  double value() const { return rows_ == 0 ? 0 : sum_ / double(rows_); }

 private:
  double sum_ = 0;
  int64_t rows_ = 0;
};

}  // namespace

std::string collapse_warning(const EvalPrediction& prediction,
                             const std::vector<std::string>& labels) {
  const bool has_classes = prediction.label_ids.defined() && prediction.label_ids.rank() == 1 &&
                           !is_floating(prediction.label_ids.dtype()) &&
                           prediction.predictions.size(1) > 1;
  if (!has_classes || !all_finite(prediction.predictions)) return "";
  const ConfusionMatrix matrix = confusion_matrix(prediction);
  const int64_t rows = matrix.total();
  const std::vector<ClassCounts> classes = matrix.per_class();
  const auto only = std::ranges::find(classes, rows, &ClassCounts::predicted);
  const auto commonest = std::ranges::max_element(classes, {}, &ClassCounts::support);
  if (rows == 0 || only == classes.end() || commonest->support() == rows) return "";
  const auto name = [&](const auto& of_class) {
    return printable(labels.at(size_t(of_class - classes.begin())));
  };
  return fmt::format(
      "all {} rows are predicted to be {}, which {:.1f} % of them are; always answering {} has an "
      "accuracy of {:.4f}; a lower learning rate or a longer warm-up often helps, class weights "
      "where a class is rare",
      rows, name(only), 100 * double(only->support()) / double(rows), name(commonest),
      double(commonest->support()) / double(rows));
}

Evaluator::Evaluator(const Model& model, int64_t batch_size, ComputeMetrics compute_metrics,
                     std::optional<DType> autocast, double label_smoothing)
    : model_(model),
      batch_size_(batch_size),
      compute_metrics_(std::move(compute_metrics)),
      autocast_(autocast),
      label_smoothing_(label_smoothing) {}

// Calls `each_batch` with the logits of a batch on the device, its rows and their labels on the
// CPU. Nothing else of the batch is kept until then.
void Evaluator::run(const text::Examples& set,
                    const std::function<void(const Tensor&, const std::vector<int64_t>&,
                                             const Tensor&)>& each_batch) const {
  const NoGrad no_grad;
  const EvalMode eval_mode(model_);
  const text::Sampler sampler(
      int64_t(set.sequences.size()),
      {.batch_size = batch_size_, .strategy = text::SamplingStrategy::sequential});
  const memory::Scope data(memory::Category::data);
  for (const std::vector<int64_t>& rows : sampler.batches(0)) {
    Tensor labels;
    const auto logits = [&] {
      const PackedBatch batch = text::pack(set, rows);
      labels = batch.labels;
      const memory::Scope forward(memory::Category::activations);
      const Autocast precision(autocast_);
      return model_.forward(batch.to(model_.device()));
    }();
    each_batch(logits, rows, labels);
  }
}

EvalPrediction Evaluator::predict(const text::Examples& set) const {
  const int64_t labels = model_.config.num_labels();
  const memory::Scope data(memory::Category::data);
  const Tensor logits = Tensor::empty({int64_t(set.sequences.size()), labels});
  run(set, [&](const Tensor& part, const std::vector<int64_t>& rows, const Tensor&) {
    copy(logits.view(part.shape(), {labels, 1}, rows.front() * labels), part);
  });
  return {logits, set.labels};
}

Evaluation Evaluator::evaluate(const text::Examples& set) const {
  check(!set.sequences.empty(), "evaluate: there is no data");
  check(set.labels.defined(), "evaluate: the data has no labels");
  const Stopwatch watch;
  const int64_t labels = model_.config.num_labels();
  Evaluation evaluation;
  if (compute_metrics_) {
    const memory::Scope data(memory::Category::data);
    evaluation.prediction = {Tensor::empty({int64_t(set.sequences.size()), labels}), set.labels};
  }
  // In f64: a mean over the rows, not over means of batches.
  MeanLoss loss, unsmoothed;
  run(set, [&](const Tensor& part, const std::vector<int64_t>& rows, const Tensor& targets) {
    const memory::Scope activations(memory::Category::activations);
    const Tensor host = part.to(Device::cpu());
    const Tensor logits = convert(host, DType::f64);
    const int64_t counted = counted_rows(set, rows);
    loss.add(model_.loss(logits, targets, label_smoothing_).item(), counted);
    if (label_smoothing_ > 0) unsmoothed.add(model_.loss(logits, targets).item(), counted);
    if (const Tensor& all = evaluation.prediction.predictions; all.defined())
      copy(all.view(host.shape(), {labels, 1}, rows.front() * labels), host);
  });
  Metrics& metrics = evaluation.metrics;
  metrics.emplace_back("eval_loss", loss.value());
  if (label_smoothing_ > 0) metrics.emplace_back("eval_unsmoothed_loss", unsmoothed.value());
  if (compute_metrics_)
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
