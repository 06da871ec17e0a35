#include "core/cuda/graph.h"
#include "core/memory.h"
#include "core/recording.h"
#include "tests/core/cuda/needs_device.h"
#include "tests/train/cuda/captured_step_testing.h"

// A training step that is recorded once and launched as one.
namespace minim::test {
namespace {

const Device device = Device::cuda();

TEST_CASE("ten steps on a device by graphs have the bits of the same calls one by one" *
          needs_device) {
  for (const std::string_view rule : {"adamw", "adafactor", "adam8bit"}) {
    CAPTURE(rule);
    Training one_by_one(rule), launched(rule);
    CapturedStep step(launched.model, *launched.optimizer, {.tokens_multiple = 16});
    const std::vector<PackedBatch> all = batches();
    for (size_t i = 0; i < all.size(); ++i) {
      CAPTURE(i);
      CHECK(one_by_one.eager(all[i], rate(i)) == values_of(step.run(all[i], rate(i))));
    }
    CHECK(one_by_one.weights() == launched.weights());
    CHECK(one_by_one.state() == launched.state());
    CHECK(one_by_one.model.generator().offset == launched.model.generator().offset);
    CHECK(step.graphs() >= 2);
    CHECK(step.launched_steps() >= 6);
  }
}

TEST_CASE("blocks that graphs on a device compute again have the dropout of the first time" *
          needs_device) {
  Training one_by_one("adamw", 0.2, 3), launched("adamw", 0.2, 3);
  launched.model.gradient_checkpointing_enable();
  CapturedStep step(launched.model, *launched.optimizer, {.tokens_multiple = 64});
  const std::vector<PackedBatch> all = batches();
  for (size_t i = 0; i < 4; ++i)
    CHECK(one_by_one.eager(all[i], 0.01) == values_of(step.run(all[i], 0.01)));
  CHECK(one_by_one.weights() == launched.weights());
  CHECK(one_by_one.model.generator().offset == launched.model.generator().offset);
  CHECK(step.launched_steps() == 3);
}

// A rate of 0 or nearly makes the numbers of groups with and without decay equal, for that step.
TEST_CASE("groups on a device that step alike for once are told apart in the next launch" *
          needs_device) {
  for (const std::string_view rule : {"adamw", "adam8bit", "adafactor"}) {
    CAPTURE(rule);
    Training one_by_one(rule), launched(rule);
    CapturedStep step(launched.model, *launched.optimizer, {.tokens_multiple = 64});
    const std::vector<PackedBatch> all = batches();
    const double rates[] = {0.0, 0.0, 0.02, 1e-9, 0.02, 0.0};
    for (size_t i = 0; i < 6; ++i)
      CHECK(one_by_one.eager(all[i], rates[i]) == values_of(step.run(all[i], rates[i])));
    CHECK(step.launched_steps() == 5);
    CHECK(one_by_one.weights() == launched.weights());
  }
}

TEST_CASE("the memory of graphs on a device goes back when they go" * needs_device) {
  Training training("adamw");
  const std::vector<PackedBatch> all = batches();
  training.eager(all[0], 0.01);
  const int64_t before = memory::current(device);
  {
    CapturedStep step(training.model, *training.optimizer, {.tokens_multiple = 64});
    for (const PackedBatch& batch : all)
      step.run(batch, 0.01);
    CHECK(memory::current(device) > before);
  }
  CHECK(memory::current(device) == before);
}

TEST_CASE("a graph on a device that has the addresses of other weights is recorded again" *
          needs_device) {
  Training one_by_one("adamw"), launched("adamw");
  CapturedStep step(launched.model, *launched.optimizer, {.tokens_multiple = 64});
  const std::vector<PackedBatch> all = batches();
  const auto both = [&](size_t i) {
    CHECK(one_by_one.eager(all[i], 0.01) == values_of(step.run(all[i], 0.01)));
  };
  for (size_t i = 0; i < 3; ++i)
    both(i);
  CHECK(step.launched_steps() == 2);

  // A state that is loaded lies elsewhere.
  for (Training* training : {&one_by_one, &launched})
    training->optimizer->load_state_dict(training->optimizer->state_dict(),
                                         training->optimizer->metadata());
  for (size_t i = 3; i < 6; ++i)
    both(i);
  CHECK(step.launched_steps() == 4);

  // A parameter without gradient is left alone.
  for (Training* training : {&one_by_one, &launched})
    training->model.freeze("distilbert.embeddings.*");
  for (size_t i = 6; i < 9; ++i)
    both(i);
  CHECK(step.launched_steps() == 6);

  // Values that are copied in lie where the others did.
  for (Training* training : {&one_by_one, &launched})
    training->model.load_state_dict(small_model(0.1, 7).state_dict());
  both(9);
  CHECK(step.launched_steps() == 7);
  CHECK(one_by_one.weights() == launched.weights());
}

TEST_CASE("of more graphs on a device than are wanted the one not used for longest goes" *
          needs_device) {
  Training one_by_one("adamw"), launched("adamw");
  CapturedStep step(launched.model, *launched.optimizer, {.tokens_multiple = 1, .most_graphs = 1});
  const std::vector<PackedBatch> all = batches();
  for (const size_t i : {0u, 0u, 2u, 2u, 0u, 0u, 2u}) {
    CHECK(one_by_one.eager(all[i], 0.01) == values_of(step.run(all[i], 0.01)));
    CHECK(step.graphs() <= 1);
  }
  CHECK(step.launched_steps() == 5);
}

TEST_CASE("a batch that no graph on a device is for is stepped one by one, with its own error" *
          needs_device) {
  Training training("adamw");
  CapturedStep step(training.model, *training.optimizer, {.tokens_multiple = 64});
  const std::vector<PackedBatch> all = batches();
  for (size_t i = 0; i < 3; ++i)
    step.run(all[i], 0.01);
  const auto error_of_run = [&](const PackedBatch& batch) -> std::string {
    try {
      step.run(batch, 0.01);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  PackedBatch bad = all[0];
  bad.input_ids = all[0].input_ids.clone();
  bad.input_ids.data<int32_t>()[3] = 30;
  CHECK(error_of_run(bad) == "embedding: id 30 at position 3 is outside a table of 30 rows");
  bad = all[0];
  bad.labels = Tensor::from<int64_t>({0, 1, 2, 0}, {4});
  CHECK(error_of_run(bad) == "cross_entropy: target 2 of row 2 is outside the 2 classes");
  bad.labels = Tensor::from<int64_t>({-100, -100, -100, -100}, {4});
  CHECK(step.run(bad, 0.01).loss.item() == 0);
  CHECK(step.launched_steps() == 2);
  step.run(all[1], 0.01);
  CHECK(step.launched_steps() == 3);
}

TEST_CASE("what cannot be recorded on a device says why" * needs_device) {
  Training training("adamw");
  training.optimizer->set_on_non_finite(optim::OnNonFinite::skip);
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  CHECK(message([&] { CapturedStep(training.model, *training.optimizer); }) ==
        "captured_step: adamw asks before each step whether gradients are finite, which waits for "
        "the device; set OnNonFinite::apply, or run the step one by one");
  const auto here = small_model();
  CHECK(message([&] { CapturedStep(here, *training.optimizer); }) ==
        "captured_step: the model is on cpu, must be on a CUDA device");
}

TEST_CASE("work on a device that reads values cannot be recorded, and leaves the device usable" *
          needs_device) {
  const Tensor x = Tensor::full({1}, 3.0, DType::f32, device);
  Recording recording(device, 1024);
  std::string told;
  try {
    const cuda::Graph graph(device, [&] {
      const Recording::Use use(recording);
      x.item();
    });
  } catch (const Error& error) {
    told = error.what();
  }
  CHECK(told ==
        "graph: a step that is recorded reads values from the device; whatever does so belongs "
        "before or after it");
  CHECK(x.item() == 3);
}

TEST_CASE("filling up a batch adds one sequence, which has no label") {
  const PackedBatch batch = text::pack(small_set(3), std::vector<int64_t>{0, 1, 2});
  REQUIRE(batch.tokens() == 12);
  const PackedBatch filled = train::fill_up(batch, 8, 0);
  CHECK(filled.tokens() == 16);
  CHECK(filled.sequences() == 4);
  CHECK(filled.offsets.to_vector<int32_t>() == std::vector<int32_t>{0, 3, 7, 12, 16});
  CHECK(filled.key_begin.to_vector<int32_t>() == std::vector<int32_t>{0, 3, 7, 12});
  CHECK(filled.labels.numel() == 3);
  // A multiple already: still one more sequence, which is not empty.
  CHECK(train::fill_up(filled, 8, 0).tokens() == 24);
}

TEST_CASE("a forward that is run again in the backward of a graph on a device draws the same" *
          needs_device) {
  Generator generator{.seed = 5, .offset = 40};
  Recording recording(device, 1024);
  const auto blocks = [](const RealRows& rows) { return uint64_t(rows.tokens); };
  {
    const Recording::Use use(recording);
    recording.set_rows({.tokens = 3});
    draw_mask(0.5f, generator, blocks);
    draw_mask(0.5f, generator, blocks);
    Generator again{.seed = 5, .offset = 40};  // as nn::recompute puts it back
    draw_mask(0.5f, again, blocks);
  }
  CHECK(generator.offset == 46);
  recording.replay();
  recording.set_rows({.tokens = 4});
  recording.draw_again(generator);
  CHECK(generator.offset == 54);
}

TEST_CASE("a model on a device that left its optimizer's state behind is an error" * needs_device) {
  Training training("adamw");
  training.eager(batches()[0], 0.01);
  training.model.to(Device::cpu());
  const PackedBatch batch = batches()[0];
  training.model.loss(training.model.forward(batch), batch.labels).backward();
  std::string told;
  try {
    training.optimizer->step();
  } catch (const Error& error) {
    told = error.what();
  }
  CHECK(told.starts_with("adamw: "));
  CHECK(told.ends_with(
      " is on cpu, its state on cuda:0; move the model before the first step, or load the state "
      "again after it"));
}

}  // namespace
}  // namespace minim::test
