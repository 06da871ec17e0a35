#pragma once

#include <concepts>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "autograd/autocast.h"
#include "nn/module.h"
#include "optim/any_optimizer.h"
#include "optim/grad_scaler.h"
#include "optim/schedule.h"
#include "train/data_loader.h"

// The plumbing of a training loop of one's own, with the names of Hugging Face's accelerate.
namespace minim::train {

class Accelerator;

// An optimizer that takes its rate from the prepared scheduler, if there is one, its scale from
// clip_grad_norm(), and steps only where an update is complete.
class AcceleratedOptimizer {
 public:
  void step();
  // Drops all gradients, but not those of an update that is being accumulated.
  void zero_grad();
  // The rate of the next step.
  double learning_rate() const;

 private:
  friend class Accelerator;
  explicit AcceleratedOptimizer(Accelerator& accelerator) : accelerator_(&accelerator) {}
  Accelerator* accelerator_;
};

// A schedule and where it stands.
class AcceleratedScheduler {
 public:
  // Moves on; only where an update is complete.
  void step();
  double get_last_lr() const;

 private:
  friend class Accelerator;
  explicit AcceleratedScheduler(Accelerator& accelerator) : accelerator_(&accelerator) {}
  Accelerator* accelerator_;
};

struct AcceleratorOptions {
  int64_t gradient_accumulation_steps = 1;  // batches of one update, where accumulate() is called
  std::string mixed_precision = "no";       // "bf16", "fp16"; forward() belongs under autocast()
};

// One model, one optimizer, one scheduler and any number of data loaders, in one process and on the
// device where the model is when it is prepared; batches come there.
//
//   train::Accelerator accelerator;
//   auto [model, optimizer, train_loader, eval_loader, scheduler] =
//       accelerator.prepare(base, adamw, train_data, eval_data, schedule);
//   for (int64_t epoch = 0; epoch < 3; ++epoch)
//     for (const PackedBatch& batch : train_loader) {
//       accelerator.backward(model.loss(model.forward(batch), batch.labels));
//       accelerator.clip_grad_norm(model.parameters(), 1.0);
//       optimizer.step();
//       scheduler.step();
//       optimizer.zero_grad();
//     }
//
// The steps are those of train::Trainer, bit for bit. As there, and not as in accelerate, an update
// over several batches of a prepared loader is the gradient of the mean over all their rows, and
// the last of an epoch may have fewer. Several processes are not among what it does.
class Accelerator {
 public:
  explicit Accelerator(AcceleratorOptions options = {});
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  // What was given, in that order: models as references, and optimizers (optim::AnyOptimizer),
  // schedules (optim::Schedule) and loaders ready for the loop. The caller's models and optimizers
  // and the Accelerator outlive these. Throws for a second model, optimizer or schedule.
  template <class... T>
  auto prepare(T&... things) {
    return std::tuple<decltype(prepare_one(things))...>{prepare_one(things)...};
  }

  // At the head of the loop's body, where an update takes several batches.
  void accumulate(const nn::Module& model);
  // Whether the batch at hand completes an update. Without accumulate() every batch does.
  bool sync_gradients() const { return sync_gradients_; }

  // A scope for forward and loss, as mixed_precision says:
  //   const auto loss = [&] {
  //     const Autocast precision = accelerator.autocast();
  //     return model.loss(model.forward(batch), batch.labels);
  //   }();
  Autocast autocast() const { return Autocast(autocast_); }
  // Whether the last step was left out because gradients overflowed under fp16.
  bool optimizer_step_was_skipped() const { return was_skipped_; }
  // Adds the gradients of a loss, in its share of the update; scaled under fp16.
  void backward(const Tensor& loss);
  // The norm of all gradients; the optimizer's next step scales them so that it is at most max_norm
  // (if it updates other parameters than these, they are scaled at once). Throws where a gradient
  // is not finite, but under fp16 the step is left out. Does nothing and returns 0 where the update
  // is not complete.
  double clip_grad_norm(const NamedTensors& parameters, double max_norm);

  // What all processes have of an evaluation's results; there is one process.
  Tensor gather_for_metrics(const Tensor& tensor) const { return tensor; }
  std::pair<Tensor, Tensor> gather_for_metrics(const Tensor& predictions,
                                               const Tensor& references) const {
    return {predictions, references};
  }

  // A line on standard output, once for all processes.
  template <class... Args>
  void print(fmt::format_string<Args...> text, Args&&... args) const {
    fmt::print("{}\n", fmt::format(text, std::forward<Args>(args)...));
    std::fflush(stdout);
  }

  // Writes the weights, the optimizer's state, the scheduler's, the random numbers' and the places
  // of all loaders into a folder, complete or not at all, in the place of one that is there. Throws
  // within an update.
  void save_state(const std::string& folder) const;
  // Puts back what save_state() wrote: the loop goes on bit for bit, a `for` over a loader with
  // the batches that were left of its epoch. Throws where it does not fit what was prepared.
  void load_state(const std::string& folder);

 private:
  friend class AcceleratedOptimizer;
  friend class AcceleratedScheduler;

  template <std::derived_from<nn::Module> M>
  M& prepare_one(M& model) {
    set_model(model);
    return model;
  }
  template <std::derived_from<optim::AnyOptimizer> O>
  AcceleratedOptimizer prepare_one(O& optimizer) {
    set_optimizer(optimizer);
    return AcceleratedOptimizer(*this);
  }
  AcceleratedScheduler prepare_one(const optim::Schedule& schedule);
  DataLoader prepare_one(const DataLoader& loader);

  void set_model(const nn::Module& model);
  void set_optimizer(optim::AnyOptimizer& optimizer);
  bool updates_exactly(const NamedTensors& parameters) const;

  AcceleratorOptions options_;
  std::optional<nn::Module> model_;
  optim::AnyOptimizer* optimizer_ = nullptr;
  optim::Schedule schedule_;
  std::vector<DataLoader> loaders_;
  int64_t schedule_step_ = 0;
  int64_t batches_ = 0;  // in the update, where no loader says which
  bool sync_gradients_ = true;
  double share_ = 1;  // of the batch at hand in the update
  optim::StepOptions step_ = {};
  std::optional<DType> autocast_;
  optim::GradScaler scaler_;
  bool was_skipped_ = false;
};

}  // namespace minim::train
