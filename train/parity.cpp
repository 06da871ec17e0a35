#include "train/parity.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "core/random.h"
#include "optim/clip.h"
#include "text/packing.h"
#include "train/table.h"

namespace minim::train {

namespace {

using Model = models::DistilBertForSequenceClassification;

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) return std::numeric_limits<double>::quiet_NaN();
    most = std::max(most, std::abs(value));
  }
  return most;
}

std::vector<double> minus(std::vector<double> a, const std::vector<double>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    a[i] -= b[i];
  return a;
}

TensorParity compare(std::string kind, std::string name, const Tensor& here, const Tensor& there,
                     double relative, double absolute) {
  const auto a = here.to_vector<double>(), b = there.to_vector<double>();
  const double scale = largest(a);
  return {std::move(kind), std::move(name),      here.shape(),
          scale,           largest(minus(a, b)), relative * scale + absolute};
}

// One of the two models with what the step makes of it.
struct Side {
  Side(const ParityStep& step, Device device, const PackedBatch& any_batch)
      : model(step.make_model(device)), optimizer(step.make_optimizer(model)) {
    const PackedBatch batch = any_batch.to(device);
    model.train();
    logits = model.forward(batch);
    loss = model.loss(logits, batch.labels);
    loss.backward();
    norm = optim::gradient_norm(model.parameters());
  }

  Model model;
  std::unique_ptr<optim::AnyOptimizer> optimizer;
  Tensor logits, loss;
  double norm = 0;
};

// What is to be said of a number that a table has no room for.
nlohmann::json number(double value) {
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(nullptr);
}

}  // namespace

bool Parity::agrees() const {
  return std::ranges::all_of(tensors, &TensorParity::agrees);
}

Parity compare_step(const ParityStep& step, Device device, const PackedBatch& batch) {
  const Side here(step, Device::cpu(), batch), there(step, device, batch);
  const NamedTensors ours = here.model.parameters(), theirs = there.model.parameters();
  check(ours.size() == theirs.size(), "parity: models of {} and {} parameters, must be equal",
        ours.size(), theirs.size());
  Parity parity{device, std::string(here.optimizer->name()), batch.sequences(), batch.tokens(), {}};
  std::vector<TensorParity>& all = parity.tensors;
  all.push_back(compare("logits", "", here.logits, there.logits, 1e-4, 1e-6));
  all.push_back(compare("loss", "", here.loss, there.loss, 1e-5, 1e-6));
  all.push_back(compare("gradient norm", "", Tensor::full({}, here.norm, DType::f64),
                        Tensor::full({}, there.norm, DType::f64), 1e-4, 0));

  double most = 0;
  for (const NamedTensor& own : ours)
    if (own.tensor.grad().defined())
      most = std::max(most, largest(own.tensor.grad().to_vector<double>()));
  for (size_t i = 0; i < ours.size(); ++i) {
    const auto& [name, tensor] = ours[i];
    const Tensor gradient = tensor.grad(), other = theirs[i].tensor.grad();
    check(gradient.defined() == other.defined(), "parity: {} has a gradient on one side alone",
          name);
    if (!gradient.defined()) continue;
    all.push_back(compare("gradient", name, gradient, other, 1e-4, 2e-6 * most));
    Tensor(theirs[i].tensor).set_grad(gradient.to(device));
  }

  std::vector<std::vector<double>> before;
  for (const NamedTensor& own : ours)
    before.push_back(own.tensor.to_vector<double>());
  const double scale =
      step.max_grad_norm > 0 ? optim::clip_coefficient(here.norm, step.max_grad_norm) : 1.0;
  const optim::StepOptions options{.gradient_scale = scale, .gradient_norm = here.norm};
  here.optimizer->step(options);
  there.optimizer->step(options);
  for (size_t i = 0; i < ours.size(); ++i) {
    const double change = largest(minus(ours[i].tensor.to_vector<double>(), before[i]));
    all.push_back(
        compare("parameter", ours[i].name, ours[i].tensor, theirs[i].tensor, 1e-6, 1e-3 * change));
  }
  return parity;
}

PackedBatch random_batch(const models::DistilBertConfig& config,
                         const std::vector<int64_t>& lengths, uint64_t seed) {
  uint64_t counter = 0;
  const auto draw = [&](int64_t below) {
    return int64_t(philox(seed, counter++).words[0] % uint64_t(below));
  };
  std::vector<text::TokenSequence> sequences;
  for (const int64_t length : lengths) {
    text::TokenSequence& sequence = sequences.emplace_back();
    for (int64_t i = 0; i < length; ++i)
      sequence.input_ids.push_back(int32_t(draw(config.vocab_size)));
  }
  const auto rows = int64_t(lengths.size());
  const int64_t classes = config.num_labels();
  if (classes > 1 && config.problem_type != "multi_label_classification") {
    std::vector<int64_t> labels;
    for (int64_t row = 0; row < rows; ++row)
      labels.push_back(draw(classes));
    return text::pack(sequences, Tensor::from(labels, {rows}));
  }
  std::vector<float> targets;
  for (int64_t i = 0; i < rows * classes; ++i)
    targets.push_back(float(draw(2)));
  return text::pack(sequences, Tensor::from(targets, {rows, classes}));
}

std::string parity_table(const Parity& parity) {
  Table table({"tensor", "shape", "largest on cpu", "difference", "allowed", ""});
  int64_t different = 0;
  for (const TensorParity& t : parity.tensors) {
    different += t.agrees() ? 0 : 1;
    table.add({t.name.empty() ? t.kind : t.kind + " " + t.name, fmt::format("{}", t.shape),
               fmt::format("{:.3e}", t.scale), fmt::format("{:.1e}", t.difference),
               fmt::format("{:.1e}", t.tolerance), t.agrees() ? "ok" : "DIFFERS"});
  }
  return fmt::format("One step with {} on cpu and {}: {} sequences, {} tokens, f32\n\n{}\n{}\n",
                     parity.optimizer, parity.device, parity.sequences, parity.tokens,
                     table.to_string(),
                     different == 0 ? fmt::format("all {} tensors agree", parity.tensors.size())
                                    : fmt::format("{} of {} tensors differ by more than is allowed",
                                                  different, parity.tensors.size()));
}

std::string parity_json(const Parity& parity) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const TensorParity& t : parity.tensors)
    tensors.push_back({{"kind", t.kind},
                       {"name", t.name},
                       {"shape", std::vector<int64_t>(t.shape.begin(), t.shape.end())},
                       {"largest", number(t.scale)},
                       {"difference", number(t.difference)},
                       {"tolerance", number(t.tolerance)},
                       {"agrees", t.agrees()}});
  const nlohmann::json object = {
      {"device", parity.device.to_string()}, {"optimizer", parity.optimizer},
      {"sequences", parity.sequences},       {"tokens", parity.tokens},
      {"agrees", parity.agrees()},           {"tensors", tensors}};
  return object.dump() + "\n";
}

}  // namespace minim::train
