#include <cmath>

#include "optim/make_optimizer.h"
#include "optim/schedule.h"
#include "tests/train/small_model.h"
#include "train/accelerator.h"

// A loop of one's own makes the Trainer's numbers.
using namespace minim;
using namespace minim::test;
using train::Accelerator;
using train::DataLoader;

namespace {

TrainingArguments arguments_for(const std::string& optimizer, int64_t accumulation) {
  TrainingArguments arguments{.per_device_train_batch_size = 3,
                              .num_train_epochs = 2,
                              .gradient_accumulation_steps = accumulation,
                              .optim = optimizer,
                              .learning_rate = 1e-2,
                              .warmup_steps = 2};
  if (optimizer == "adam8bit") arguments.optim_args = "min_8bit_size=64,block_size=64";
  return arguments;
}

std::unique_ptr<optim::AnyOptimizer> optimizer_for(
    const TrainingArguments& arguments, const DistilBertForSequenceClassification& model) {
  return optim::make_optimizer(arguments.optim, optim::decay_groups(model, 0.01),
                               arguments.optimizer_arguments());
}

std::vector<double> numbers_of(const NamedTensors& tensors) {
  std::vector<double> all;
  for (const NamedTensor& tensor : tensors)
    for (double value : tensor.tensor.to_vector<double>())
      all.push_back(value);
  return all;
}

// Some rows do not count, so that the batches of an update have different shares in it.
text::Examples uneven_set(int64_t rows) {
  text::Examples set = small_set(rows);
  for (int64_t i = 0; i < rows; i += 5)
    set.labels.values<int64_t>()[size_t(i)] = -100;
  return set;
}

// The loop of a course, over 20 rows in 7 batches.
struct Loop {
  explicit Loop(const TrainingArguments& a)
      : arguments(a),
        model(small_model(0.25)),
        any(optimizer_for(a, model)),
        loader(uneven_set(20), {.batch_size = 3}),
        steps(2 * ((loader.size() + a.gradient_accumulation_steps - 1) /
                   a.gradient_accumulation_steps)),
        schedule(optim::make_schedule("linear", a.schedule_options(steps))),
        accelerator({.gradient_accumulation_steps = a.gradient_accumulation_steps}),
        prepared(accelerator.prepare(model, *any, loader, schedule)) {}

  // Up to the end of the epoch, or of so many updates.
  void run_epoch(int64_t updates = 1000) {
    auto& [the_model, optimizer, batches, scheduler] = prepared;
    the_model.train();
    for (const PackedBatch& batch : batches) {
      accelerator.accumulate(the_model);
      accelerator.backward(the_model.loss(the_model.forward(batch), batch.labels));
      const double norm = accelerator.clip_grad_norm(the_model.parameters(), 1.0);
      if (accelerator.sync_gradients()) {
        norms.push_back(norm);
        rates.push_back(optimizer.learning_rate());
      }
      optimizer.step();
      scheduler.step();
      optimizer.zero_grad();
      if (accelerator.sync_gradients() && --updates == 0) return;
    }
  }

  TrainingArguments arguments;
  DistilBertForSequenceClassification model;
  std::unique_ptr<optim::AnyOptimizer> any;
  DataLoader loader;
  int64_t steps;
  optim::Schedule schedule;
  Accelerator accelerator;
  std::tuple<DistilBertForSequenceClassification&, train::AcceleratedOptimizer, DataLoader,
             train::AcceleratedScheduler>
      prepared;
  std::vector<double> norms, rates;
};

}  // namespace

TEST_CASE(
    "an Accelerator's loop gives weights, state, norms and rates of the Trainer, bit for bit") {
  for (const char* name : {"adamw", "adafactor", "adam8bit"})
    for (int64_t accumulation : {1, 2, 3, 50}) {
      CAPTURE(name);
      CAPTURE(accumulation);
      const TrainingArguments arguments = arguments_for(name, accumulation);
      auto trained = small_model(0.25);
      const auto optimizer = optimizer_for(arguments, trained);
      Trainer trainer(trained, arguments, uneven_set(20), {}, *optimizer);
      const auto recorder = std::make_shared<Recorder>();
      trainer.add_callback(recorder);
      trainer.train();

      Loop loop(arguments);
      loop.run_epoch();
      loop.run_epoch();
      CHECK(numbers_of(loop.model.parameters()) == numbers_of(trained.parameters()));
      CHECK(numbers_of(loop.any->state_dict()) == numbers_of(optimizer->state_dict()));
      REQUIRE(loop.norms.size() == recorder->steps.size());
      for (size_t i = 0; i < loop.norms.size(); ++i) {
        CHECK(loop.norms[i] == recorder->steps[i].grad_norm);
        CHECK(loop.rates[i] == recorder->steps[i].learning_rate);
      }
    }
}

TEST_CASE("a saved loop goes on bit for bit, within an epoch too") {
  for (int64_t updates : {1, 2, 4}) {  // of 4 an epoch
    CAPTURE(updates);
    const TemporaryFolder folder;
    const TrainingArguments arguments = arguments_for("adamw", 2);
    Loop loop(arguments);
    loop.run_epoch(updates);
    loop.accelerator.save_state(folder / "state");
    CHECK(folder.files() == std::vector<std::string>{"state"});
    if (updates < 4) {
      Loop resumed(arguments);
      resumed.accelerator.load_state(folder / "state");
      resumed.run_epoch();
      resumed.run_epoch();
      Loop alone(arguments);
      alone.run_epoch();
      alone.run_epoch();
      CHECK(numbers_of(resumed.model.parameters()) == numbers_of(alone.model.parameters()));
      CHECK(numbers_of(resumed.any->state_dict()) == numbers_of(alone.any->state_dict()));
      continue;
    }
    Loop resumed(arguments);
    resumed.accelerator.load_state(folder / "state");
    resumed.run_epoch();
    loop.run_epoch();
    CHECK(numbers_of(resumed.model.parameters()) == numbers_of(loop.model.parameters()));
  }
}

TEST_CASE("without a prepared loader every so many batches are an update of equal shares") {
  const TrainingArguments arguments = arguments_for("adamw", 1);
  auto model = small_model();
  const auto any = optimizer_for(arguments, model);
  Accelerator accelerator({.gradient_accumulation_steps = 2});
  auto [the_model, optimizer] = accelerator.prepare(model, *any);
  const text::Examples set = small_set(8);
  std::vector<bool> syncs;
  Tensor halves;
  for (const std::vector<int64_t>& rows :
       {std::vector<int64_t>{0, 1, 2, 3}, {4, 5, 6, 7}, {0, 1, 2, 3}}) {
    const PackedBatch batch = text::pack(set, rows);
    accelerator.accumulate(the_model);
    accelerator.backward(the_model.loss(the_model.forward(batch), batch.labels));
    syncs.push_back(accelerator.sync_gradients());
    if (syncs.size() == 2) halves = model.classifier.weight.grad().clone();
    optimizer.step();
    optimizer.zero_grad();
    if (syncs.size() == 1) CHECK(model.classifier.weight.grad().defined());
  }
  CHECK(syncs == std::vector<bool>{false, true, false});
  // The mean over both batches; sums of eight rows in another order differ by rounding alone.
  const auto same = small_model();
  const std::vector<int64_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  const PackedBatch batch = text::pack(set, all);
  same.loss(same.forward(batch), batch.labels).backward();
  CHECK(worst_difference(halves.to_vector<float>(),
                         same.classifier.weight.grad().to_vector<float>()) < 1e-6);
}

TEST_CASE("clipping other parameters than the optimizer's scales them at once") {
  auto model = small_model();
  optim::AdamW any(model.parameters());
  Accelerator accelerator;
  accelerator.prepare(any);
  const text::Examples set = small_set(4);
  const PackedBatch batch = text::pack(set.sequences, set.labels);
  accelerator.backward(model.loss(model.forward(batch), batch.labels));
  const NamedTensors head = {{"classifier.weight", model.classifier.weight}};
  CHECK(accelerator.clip_grad_norm(head, 1e-3) > 1e-3);
  double squares = 0;
  for (float g : model.classifier.weight.grad().to_vector<float>())
    squares += double(g) * g;
  CHECK(std::sqrt(squares) == doctest::Approx(1e-3).epsilon(1e-2));
  model.classifier.bias.grad().values<float>()[0] = NAN;
  CHECK(error_of([&] {
          accelerator.clip_grad_norm(model.parameters(), 1.0);
        }).starts_with("clip_grad_norm: the gradient of classifier.bias holds 1 NaN"));
}

TEST_CASE("a loader gives the Sampler's order epoch by epoch, also after a loop that was left") {
  const text::Examples set = small_set(10);
  const text::Sampler::Options options{.batch_size = 4, .seed = 7};
  const text::Sampler sampler(10, options);
  DataLoader loader(set, options);
  CHECK(loader.size() == 3);
  const auto labels_of = [&](const std::vector<int64_t>& rows) {
    std::vector<int64_t> labels;
    for (int64_t row : rows)
      labels.push_back(set.labels.values<int64_t>()[size_t(row)]);
    return labels;
  };
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    size_t batch = 0;
    for (const PackedBatch& packed : loader) {
      CHECK(packed.labels.to_vector<int64_t>() == labels_of(sampler.batches(epoch)[batch++]));
      if (epoch == 1) break;
    }
    CHECK(batch == (epoch == 1 ? 1 : 3));
  }
  loader.seek(0, 2);
  int64_t left = 0;
  for (const PackedBatch& packed : loader)
    left += packed.sequences();
  CHECK(left == 2);
  CHECK(loader.epoch() == 1);
  CHECK(error_of([&] { loader.seek(0, 3); }) ==
        "data loader: epoch 0, batch 3 of 3; there is no such place");
  CHECK(error_of([] { DataLoader({}, {}); }) == "data loader: the data set is empty");
}

TEST_CASE("what an Accelerator cannot do, it says") {
  const TrainingArguments arguments = arguments_for("adamw", 2);
  Loop loop(arguments);
  CHECK(error_of([] { Accelerator({.gradient_accumulation_steps = 0}); }) ==
        "gradient_accumulation_steps: must be at least 1, is 0");
  CHECK(error_of([&] { loop.accelerator.prepare(loop.model); }) ==
        "accelerator: prepare: there is a model already; a second needs its own");
  const TemporaryFolder folder;
  loop.run_epoch(1);
  loop.accelerator.save_state(folder / "state");
  Loop other(arguments);
  other.accelerator.prepare(other.loader);
  CHECK(error_of([&] { other.accelerator.load_state(folder / "state"); }) ==
        (folder / "state/accelerator_state.json: has the places of 1 data loaders, but 2 were "
                  "prepared"));
  for (const PackedBatch& batch : std::get<2>(loop.prepared)) {
    loop.accelerator.accumulate(loop.model);
    loop.accelerator.backward(loop.model.loss(loop.model.forward(batch), batch.labels));
    break;
  }
  CHECK(error_of([&] { loop.accelerator.save_state(folder / "state"); }) ==
        "accelerator: save_state: an update is being accumulated; save after the optimizer's step");
}
