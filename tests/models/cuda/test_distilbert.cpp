#include "core/file.h"
#include "optim/adamw.h"
#include "optim/clip.h"
#include "tests/core/cuda/needs_device.h"
#include "tests/models/distilbert_tiny.h"

// The model on a device, against transformers and against the CPU.
namespace minim::test {
namespace {

const Device device = Device::cuda();

DistilBertForSequenceClassification model_on(Device where, DType dtype = DType::f32) {
  auto model =
      DistilBertForSequenceClassification::from_pretrained(tiny, {.dtype = dtype, .device = where});
  model.eval();
  return model;
}

PackedBatch labelled_main() {
  PackedBatch batch = packed("main");
  batch.labels = labels_of(4);
  return batch;
}

struct Trained {
  std::vector<double> losses, norms;
  NamedTensors weights;
  uint64_t generator_offset;
};

// Steps of AdamW with dropout and clipping.
Trained train_on(Device where, int64_t steps) {
  const auto model = model_on(where);
  model.train();
  optim::AdamW optimizer(optim::decay_groups(model, 0.01), {.lr = 1e-3});
  const PackedBatch batch = labelled_main().to(where);
  Trained trained;
  for (int64_t step = 0; step < steps; ++step) {
    const Tensor loss = model.loss(model.forward(batch), batch.labels);
    loss.backward();
    trained.losses.push_back(loss.item());
    trained.norms.push_back(optim::gradient_norm(model.parameters()));
    optimizer.step(1e-3, optim::clip_coefficient(trained.norms.back(), 1.0));
    optimizer.zero_grad();
  }
  trained.weights = model.parameters();
  trained.generator_offset = model.generator().offset;
  return trained;
}

TEST_CASE("logits on a device equal those of transformers" * needs_device) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto model = model_on(device, dtype);
    for (const std::string name : {"main", "holes", "left_padding", "cls_only_among_others"}) {
      CAPTURE(name);
      const Tensor logits = model.forward(packed(name).to(device));
      CHECK(logits.device() == device);
      CHECK(worst_difference(logits, io().tensor(name + "/f64/logits")) < tolerance(dtype));
    }
  }
}

TEST_CASE("loss and gradients on a device equal those of transformers" * needs_device) {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto model = model_on(device, dtype);
    const PackedBatch batch = labelled_main().to(device);
    const Tensor loss = model.loss(model.forward(batch), batch.labels);
    CHECK(worst_difference(loss, io().tensor("main/f64/loss")) < tolerance(dtype));
    loss.backward();
    for (const auto& [name, parameter] : model.parameters()) {
      CAPTURE(name);
      REQUIRE(parameter.grad().defined());
      CHECK(parameter.grad().device() == device);
      CHECK(worst_difference(parameter.grad(), gradients().tensor("main/f64/" + name)) <
            tolerance(dtype));
    }
  }
}

TEST_CASE("ten training steps on a device are those of the CPU, dropout included" * needs_device) {
  const Trained here = train_on(Device::cpu(), 10), there = train_on(device, 10);
  // Masks are equal bit for bit: else losses would differ in their first digits.
  CHECK(here.generator_offset == there.generator_offset);
  for (size_t step = 0; step < 10; ++step) {
    CAPTURE(step);
    // f32 sums in another order are apart by about 1e-6 of a loss of 1; each step can double it.
    CHECK(std::abs(here.losses[step] - there.losses[step]) < 2e-5);
    CHECK(std::abs(here.norms[step] / there.norms[step] - 1) < 1e-3);
  }
  for (size_t i = 0; i < here.weights.size(); ++i) {
    CAPTURE(here.weights[i].name);
    const bool is_noise = here.weights[i].name.ends_with("k_lin.bias");
    // Softmax does not see a shift of all keys: that gradient is rounding, of which AdamW makes
    // steps of up to 1e-3 in either direction.
    CHECK(worst_difference(here.weights[i].tensor, there.weights[i].tensor) <
          (is_noise ? 2e-2 : 2e-4));
  }
}

TEST_CASE("the same step on a device gives the same bits twice" * needs_device) {
  const Trained a = train_on(device, 2), b = train_on(device, 2);
  CHECK(a.losses == b.losses);
  for (size_t i = 0; i < a.weights.size(); ++i)
    CHECK(same_bits(a.weights[i].tensor, b.weights[i].tensor));
}

TEST_CASE("steps on a device ask the system for no memory once they are warm" * needs_device) {
  const auto model = model_on(device);
  const PackedBatch batch = labelled_main().to(device);
  int64_t after_two = 0;
  for (int step = 0; step < 4; ++step) {
    model.loss(model.forward(batch), batch.labels).backward();
    model.zero_grad();
    if (step == 1) after_two = memory::system_allocations(device);
  }
  CHECK(memory::system_allocations(device) == after_two);
}

TEST_CASE("weights go from a file straight to a device, and back the same" * needs_device) {
  const int64_t here = memory::current(memory::Category::weights);
  const int64_t there = memory::current(memory::Category::weights, device);
  const auto model = model_on(device);
  int64_t bytes = 0;
  for (const NamedTensor& parameter : model.parameters())
    bytes += parameter.tensor.bytes();
  CHECK(memory::current(memory::Category::weights) == here);
  CHECK(memory::current(memory::Category::weights, device) == there + bytes);
  CHECK(model.device() == device);

  const TemporaryFolder folder;
  model.save_pretrained(folder.path());
  for (const std::string name : {"/config.json", "/model.safetensors"})
    CHECK(read_whole_file(folder.path() + name) == read_whole_file(tiny + name));
}

TEST_CASE("new weights on a device are those of the CPU" * needs_device) {
  DistilBertConfig config = DistilBertConfig::preset("tiny");
  config.vocab_size = 20;
  const DistilBertForSequenceClassification here(config, {.seed = 4});
  const DistilBertForSequenceClassification there(config, {.seed = 4, .device = device});
  const NamedTensors a = here.parameters(), b = there.parameters();
  for (size_t i = 0; i < a.size(); ++i) {
    CHECK(b[i].tensor.device() == device);
    CHECK(same_bits(a[i].tensor, b[i].tensor));
  }
}

TEST_CASE("a sequence that is too long is refused on a device too" * needs_device) {
  const auto model = model_on(device);
  const std::vector<text::TokenSequence> one = {{.input_ids = std::vector<int32_t>(41, 5)}};
  CHECK(error_of([&] { model.forward(text::pack(one).to(device)); }) ==
        "distilbert: a sequence has 41 tokens or more, the model has 40 positions; truncate it");
  CHECK(error_of([&] { model.forward(packed("main")); }) ==
        "embedding: devices cuda:0 and cpu differ; copy one with to()");
}

}  // namespace
}  // namespace minim::test
