#pragma once

#include "optim/clip.h"
#include "optim/make_optimizer.h"
#include "tests/train/small_model.h"
#include "text/packing.h"
#include "train/captured_step.h"

// What is trained to see whether a step by a graph is the step.
namespace minim::test {

using train::CapturedStep;

// Batches of four rows: of 16 tokens or fewer, and of 17 to 32. The first two make the graph of the
// longer ones, the next two that of the shorter.
inline std::vector<PackedBatch> batches() {
  const text::Examples set = small_set(40);
  std::vector<PackedBatch> made;
  for (const std::vector<int64_t>& rows : std::vector<std::vector<int64_t>>{{1, 2, 3, 4},
                                                                            {5, 6, 12, 3},
                                                                            {0, 1, 7, 8},
                                                                            {14, 15, 7, 0},
                                                                            {4, 5, 6, 10},
                                                                            {21, 22, 0, 1},
                                                                            {6, 5, 4, 11},
                                                                            {8, 9, 0, 7},
                                                                            {13, 20, 27, 34},
                                                                            {3, 4, 5, 10}})
    made.push_back(text::pack(set, rows));
  return made;
}

// Another rate at each step, so that one that was recorded would be seen.
inline double rate(size_t step) {
  return step < 5 ? 0.02 / double(step + 1) : 0.003;
}

struct Training {
  explicit Training(std::string_view rule, double dropout = 0.1, int64_t layers = 1)
      : model(small_config(dropout).with_overrides(fmt::format("n_layers={}", layers)),
              {.device = Device::cuda()}),
        optimizer(optim::make_optimizer(
            rule, optim::decay_groups(model, 0.01),
            {.learning_rate = 0.01,
             .optim_args = rule.ends_with("8bit") ? "min_8bit_size=64,block_size=64" : ""})) {
    model.train();
  }
  // A step of the batch as it is, without any graph: loss and norm.
  std::vector<double> eager(const PackedBatch& batch, double lr) {
    const PackedBatch there = batch.to(Device::cuda());
    const Tensor loss = model.loss(model.forward(there), there.labels);
    loss.backward();
    const auto [norm, coefficient] = optim::clip_on_device(model.parameters(), 1.0);
    optimizer->step({.lr = lr, .gradient_factor = coefficient});
    optimizer->zero_grad();
    return {loss.item(), norm.item()};
  }
  std::vector<float> weights() const { return weights_of(model); }
  std::vector<std::vector<double>> state() const {
    std::vector<std::vector<double>> all;
    for (const NamedTensor& entry : optimizer->state_dict())
      all.push_back(entry.tensor.to_vector<double>());
    return all;
  }

  DistilBertForSequenceClassification model;
  std::unique_ptr<optim::AnyOptimizer> optimizer;
};

inline std::vector<double> values_of(const CapturedStep::Result& result) {
  return {result.loss.item(), result.grad_norm.item()};
}

}  // namespace minim::test
