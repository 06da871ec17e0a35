#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/packed_batch.h"
#include "models/distilbert.h"
#include "optim/any_optimizer.h"
#include "optim/grad_scaler.h"

namespace minim::train {

struct CapturedStepOptions {
  double max_grad_norm = 1.0;  // 0: no clipping
  // skip: a step whose gradients are not finite leaves weights and state as they are.
  optim::OnNonFinite on_non_finite = optim::OnNonFinite::apply;
  std::optional<DType> autocast = {};  // f16 or bf16: of forward and loss
  // For f16: scales the loss, and skips; it is put on the device, and outlives the steps.
  optim::GradScaler* scaler = nullptr;
  // The loss of logits [sequences, labels] and the batch's labels; none: the model's own. What it
  // does on the host depends on shapes alone.
  std::function<Tensor(const Tensor& logits, const Tensor& labels)> loss = {};
  // Batches are filled up to a multiple of so many tokens, by one more sequence that counts for
  // nothing; those of one number of tokens and sequences share a graph.
  int64_t tokens_multiple = 128;
  // Of more, the one that was used longest ago is dropped.
  int64_t most_graphs = 16;
};

// Thrown where a step cannot be recorded; all is as it was before.
class CannotRecord : public Error {
 public:
  using Error::Error;
};

// A training step on a CUDA device, forward, backward, clipping, optimizer and zero_grad(), as one
// launch: it is recorded as a graph the second time that a shape of batch occurs, and launched as
// one from then on. Learning rate, step number, the corrections that follow from them and the
// places in the random sequence are told to each launch, so a schedule works as ever.
//
//   train::CapturedStep step(model, optimizer, {.max_grad_norm = 1.0});
//   for (const PackedBatch& batch : loader)             // on the CPU
//     const auto [loss, grad_norm] = step.run(batch, schedule(n++));
//
// A step computes what the same calls one by one compute for the batch, bit for bit where products
// do (cuBLASLt may add in another order for another number of tokens); filling changes nothing.
// Graphs share one piece of memory, which stays counted as what it was used for. They are recorded
// again where parameters or the optimizer's state have become other tensors, another group was
// added or a parameter frozen. Neither waits for the device.
//
// Run one by one: the first batch of each shape, those with class ids that are ignored throughout,
// and those with ids that no table has, for which the operation in question throws its usual error.
// Model and optimizer outlive this.
class CapturedStep {
 public:
  // Throws where the model is on the CPU, and for an optimizer whose rule steps each parameter by
  // itself, or that asks whether gradients are finite before each step where the step does not.
  CapturedStep(const models::DistilBertForSequenceClassification& model,
               optim::AnyOptimizer& optimizer, CapturedStepOptions options = {});
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  // The loss, and the norm of all gradients before clipping: one f32 (the model's dtype) and one
  // f64 on the device, of this step until the next one.
  struct Result {
    Tensor loss, grad_norm;
  };
  // One step on a batch that is on the CPU; `lr` as in StepOptions. The gradients are those
  // of the loss times `weight`; the result has the loss itself. Gradients from before are dropped,
  // and none are left. Throws CannotRecord.
  Result run(const PackedBatch& batch, std::optional<double> lr = {}, double weight = 1.0);

  // Graphs that are kept.
  int64_t graphs() const;
  // Steps that were one launch, among all.
  int64_t launched_steps() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The batch, which is on the CPU, with one more sequence at its end so that the number of tokens is
// a multiple; it has no label.
PackedBatch fill_up(const PackedBatch& batch, int64_t tokens_multiple, int32_t pad_token_id);

}  // namespace minim::train
