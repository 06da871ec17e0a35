#include <limits>

#include "optim/make_optimizer.h"
#include "tests/core/contains.h"
#include "tests/core/cuda/needs_device.h"
#include "tests/train/small_model.h"
#include "train/accelerator.h"
#include "train/parity.h"

// Training on a device.
namespace minim::test {
namespace {

const Device device = Device::cuda();

TrainingArguments twenty_steps() {
  return {.per_device_train_batch_size = 4,
          .max_steps = 20,
          .learning_rate = 0.02,
          .eval_strategy = IntervalStrategy::steps,
          .logging_steps = 1,  // each step's loss is read
          .eval_steps = 10};
}

TEST_CASE("a run on a device ends where one on the CPU does" * needs_device) {
  Run here(twenty_steps(), small_set(24), small_set(10), 0.1);
  Run there(twenty_steps(), small_set(24), small_set(10), 0.1, device);
  here.trainer.train();
  there.trainer.train();
  CHECK(there.model.device() == device);
  // f32 sums in another order part slowly over twenty steps.
  for (size_t step = 0; step < 20; ++step)
    CHECK(std::abs(here.recorder->steps[step].loss - there.recorder->steps[step].loss) < 2e-3);
  CHECK(there.recorder->steps.back().loss < there.recorder->steps.front().loss);
  for (size_t i = 0; i < here.recorder->evaluations.size(); ++i)
    CHECK(std::abs(value_of(here.recorder->evaluations[i], "eval_loss") -
                   value_of(there.recorder->evaluations[i], "eval_loss")) < 2e-3);
  CHECK(there.trainer.state().device == device);
  CHECK(there.trainer.state().optimizer_state_bytes >= 8 * there.model.parameter_count());
}

TEST_CASE("losses that are read later are the same, and the run too" * needs_device) {
  const auto logs_every = [](double steps) {
    Run run({.per_device_train_batch_size = 4, .max_steps = 12, .logging_steps = steps},
            small_set(24), {}, 0.1, device);
    run.trainer.train();
    double sum = 0;
    for (const Metrics& log : run.recorder->logs)
      sum += value_of(log, "loss") * steps;
    return std::pair(sum, run.weights());
  };
  const auto [each, weights] = logs_every(1);
  const auto [together, same_weights] = logs_every(6);
  CHECK(std::abs(each - together) < 1e-12);
  CHECK(weights == same_weights);
}

TEST_CASE("runs in bf16 and fp16 on a device end where those on the CPU do" * needs_device) {
  for (const train::Precision precision : {train::Precision::bf16, train::Precision::fp16}) {
    TrainingArguments arguments = twenty_steps();
    arguments.precision = precision;
    Run here(arguments, small_set(24), small_set(10), 0.1);
    Run there(arguments, small_set(24), small_set(10), 0.1, device);
    here.trainer.train();
    there.trainer.train();
    // Products of other order are rounded to 8 bits, some of them to the other neighbour.
    for (size_t step = 0; step < 20; ++step)
      CHECK(std::abs(here.recorder->steps[step].loss - there.recorder->steps[step].loss) < 0.1);
    CHECK(there.recorder->steps.back().loss < there.recorder->steps.front().loss);
  }
}

TEST_CASE("a run on a device repeats bit for bit" * needs_device) {
  const auto weights = [] {
    Run run({.per_device_train_batch_size = 4, .max_steps = 3}, small_set(12), {}, 0.1, device);
    run.trainer.train();
    return run.weights();
  };
  CHECK(weights() == weights());
}

TEST_CASE("a loss on a device that is not finite names the step and the parameter" * needs_device) {
  Run run({.per_device_train_batch_size = 4}, small_set(20), {}, 0, device);
  struct Poison : train::TrainerCallback {
    explicit Poison(const Tensor& t) : tensor(t) {}
    void on_step_end(const TrainerState& state) override {
      if (state.global_step == 2)
        fill(tensor.view({1}, {1}), std::numeric_limits<double>::infinity());
    }
    Tensor tensor;
  };
  run.trainer.add_callback(std::make_shared<Poison>(run.model.distilbert.layer[0].ffn.lin1.weight));
  CHECK(error_of([&] { run.trainer.train(); }) ==
        "step 3: the loss is nan; first not finite: parameter "
        "distilbert.transformer.layer.0.ffn.lin1.weight; a lower learning rate or a longer "
        "warm-up often helps");
}

TEST_CASE("an update that is not finite is found later, names its step and spoils nothing" *
          needs_device) {
  for (const std::string_view name : {"adamw", "adafactor", "adam8bit"}) {
    CAPTURE(name);
    DistilBertForSequenceClassification model(small_config(), {.device = device});
    const auto optimizer =
        optim::make_optimizer(name, optim::decay_groups(model, 0.01),
                              {.optim_args = name == "adam8bit" ? "min_8bit_size=64" : ""});
    struct Spoil : train::TrainerCallback {
      explicit Spoil(const DistilBertForSequenceClassification& m) : model(m) {}
      void on_step_end(const TrainerState& state) override {
        if (state.global_step != 2) return;
        before = model.classifier.weight.to_vector<float>();
        // Added to by every backward from now on.
        Tensor bias = model.classifier.bias;
        bias.set_grad(Tensor::full(bias.shape(), std::numeric_limits<double>::infinity(),
                                   DType::f32, device));
      }
      const DistilBertForSequenceClassification& model;
      std::vector<float> before;
    };
    const auto spoil = std::make_shared<Spoil>(model);
    // Update 3 is the last, so its loss is read at once after it.
    Trainer trainer(model, {.per_device_train_batch_size = 4, .max_steps = 3}, small_set(20), {},
                    *optimizer);
    trainer.add_callback(spoil);
    const std::string error = error_of([&] { trainer.train(); });
    CAPTURE(error);
    CHECK(error.starts_with("step 3: the loss is "));
    CHECK(contains(error, "first not finite: the norm of all gradients, inf"));
    CHECK(model.classifier.weight.to_vector<float>() == spoil->before);
  }
}

TEST_CASE("a loop of one's own gets its batches on the model's device" * needs_device) {
  const auto loss_on = [](Device where) {
    auto base = small_model();
    base.to(where);
    optim::AdamW adamw(optim::decay_groups(base, 0.01), {.lr = 0.02});
    train::DataLoader data(small_set(12), {.batch_size = 4});
    train::Accelerator accelerator;
    auto [loader, model, optimizer] = accelerator.prepare(data, base, adamw);
    double last = 0;
    for (const PackedBatch& batch : loader) {
      const Tensor loss = model.loss(model.forward(batch), batch.labels);
      accelerator.backward(loss);
      accelerator.clip_grad_norm(model.parameters(), 1.0);
      optimizer.step();
      optimizer.zero_grad();
      last = loss.item();
    }
    return last;
  };
  CHECK(std::abs(loss_on(device) - loss_on(Device::cpu())) < 1e-4);
}

train::ParityStep step_of(
    const std::function<void(const DistilBertForSequenceClassification&)>& change_there = nullptr) {
  return {.make_model =
              [change_there](Device where) {
                DistilBertForSequenceClassification model(small_config(0.1), {.device = where});
                if (change_there && where.is_cuda()) change_there(model);
                return model;
              },
          .make_optimizer =
              [](const nn::Module& model) {
                return std::make_unique<optim::AdamW>(optim::decay_groups(model.parameters(), 0.01),
                                                      optim::AdamW::Options{.lr = 1e-3});
              }};
}

TEST_CASE("parity compares every tensor of a step on a device" * needs_device) {
  const PackedBatch batch = train::random_batch(small_config(), {3, 9, 1, 12});
  const train::Parity parity = train::compare_step(step_of(), device, batch);
  CAPTURE(train::parity_table(parity));
  CHECK(parity.agrees());
  const size_t parameters = small_model().parameters().size();
  CHECK(parity.tensors.size() == 3 + 2 * parameters);
  for (const train::TensorParity& tensor : parity.tensors)
    CHECK(tensor.tolerance < 1e-2 * tensor.scale + 1e-4);  // a verdict that says something
}

TEST_CASE("parity names what differs on a device" * needs_device) {
  const PackedBatch batch = train::random_batch(small_config(), {3, 9, 1, 12});
  // One weight in a hundred: seen in the logits, and in its own value after the step.
  const train::Parity parity =
      train::compare_step(step_of([](const DistilBertForSequenceClassification& model) {
                            fill(model.pre_classifier.weight.view({1}, {1}, 5), 0.3);
                          }),
                          device, batch);
  CHECK_FALSE(parity.agrees());
  const auto differs = [&](const std::string& kind, const std::string& name) {
    for (const train::TensorParity& tensor : parity.tensors)
      if (tensor.kind == kind && tensor.name == name) return !tensor.agrees();
    FAIL("there is no " << kind << name);
    return false;
  };
  CHECK(differs("logits", ""));
  CHECK(differs("parameter", "pre_classifier.weight"));
  CHECK_FALSE(differs("parameter", "classifier.bias"));

  const train::Parity lost =
      train::compare_step(step_of([](const DistilBertForSequenceClassification& model) {
                            fill(model.classifier.bias, std::numeric_limits<double>::quiet_NaN());
                          }),
                          device, batch);
  CHECK_FALSE(lost.tensors[0].agrees());  // NaN is no small difference
}

}  // namespace
}  // namespace minim::test
