#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "autograd/node.h"
#include "core/safetensors.h"
#include "tests/train/small_model.h"

// Sixty steps beside PyTorch and transformers: tests/data/training_curve.
using namespace minim;
using namespace minim::test;
using nlohmann::json;

namespace {

const std::string data = MINIM_TEST_DATA;

// The small model of tests/data/distilbert_tiny without dropout.
DistilBertForSequenceClassification model_without_dropout(DType dtype) {
  const TemporaryFolder folder;
  json config = json::parse(std::ifstream(data + "/distilbert_tiny/config.json"));
  for (const char* name : {"dropout", "attention_dropout", "seq_classif_dropout"})
    config[name] = 0.0;
  write_whole_file(folder / "config.json", config.dump());
  std::filesystem::copy_file(data + "/distilbert_tiny/model.safetensors",
                             folder / "model.safetensors");
  return DistilBertForSequenceClassification::from_pretrained(folder.path(), {.dtype = dtype});
}

struct Curve {
  json run;  // of f64
  Checkpoint tensors;
  std::vector<text::TokenSequence> rows;  // the 32 rows
  text::Examples steps;                   // the rows of all steps, one after another
};

Curve read_curve() {
  Curve curve{.run = {},
              .tensors = read_safetensors(data + "/training_curve/curve.safetensors"),
              .rows = {},
              .steps = {}};
  const json table = json::parse(std::ifstream(data + "/training_curve/curve.json"));
  for (const json& run : table["runs"])
    if (run["variant"] == "f64") curve.run = run;
  const auto ids = curve.tensors.tensor("input_ids").to_vector<int64_t>();
  const auto mask = curve.tensors.tensor("attention_mask").to_vector<int64_t>();
  const auto labels = curve.tensors.tensor("labels").to_vector<int64_t>();
  for (size_t row = 0; row < labels.size(); ++row) {
    text::TokenSequence sequence;
    for (size_t i = 16 * row; i < 16 * row + 16; ++i)
      if (mask[i] == 1) sequence.input_ids.push_back(int32_t(ids[i]));
    curve.rows.push_back(sequence);
  }
  std::vector<int64_t> step_labels;
  for (int64_t row : curve.tensors.tensor("batch_rows").to_vector<int64_t>()) {
    curve.steps.sequences.push_back(curve.rows[size_t(row)]);
    step_labels.push_back(labels[size_t(row)]);
  }
  curve.steps.labels = Tensor::from(step_labels, {int64_t(step_labels.size())});
  return curve;
}

double worst_difference_to(const Tensor& tensor, const Tensor& expected) {
  const auto a = tensor.to_vector<double>(), b = expected.to_vector<double>();
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i]));
  return worst;
}

}  // namespace

TEST_CASE("sixty steps follow the loss, rate, gradient norm and weights of PyTorch") {
  const Curve curve = read_curve();
  struct Bounds {
    DType dtype;
    double loss, norm, weight, logit;
  };
  // f32: the README's. f64: rounding over 60 steps; the weights of the reference are stored in f32.
  for (const Bounds& bound : {Bounds{DType::f32, 5e-6, 1e-4, 1e-5, 1e-4},
                              Bounds{DType::f64, 1e-12, 1e-11, 1e-7, 1e-10}}) {
    CAPTURE(int(bound.dtype));
    auto model = model_without_dropout(bound.dtype);
    optim::AdamW optimizer(optim::decay_groups(model, 0.01), {.lr = 2e-3});
    Trainer trainer(model,
                    {.per_device_train_batch_size = 8,
                     .num_train_epochs = 1,
                     .learning_rate = 2e-3,
                     .warmup_steps = 6,
                     .train_sampling_strategy = text::SamplingStrategy::sequential},
                    curve.steps, {}, optimizer);
    const auto recorder = std::make_shared<Recorder>();
    trainer.add_callback(recorder);
    trainer.train();

    REQUIRE(recorder->steps.size() == 60);
    double worst_rate = 0, worst_loss = 0, worst_norm = 0, worst_weight = 0;
    for (size_t i = 0; i < 60; ++i) {
      const auto difference = [&](const char* name, double value) {
        return std::abs(value - curve.run[name][i].get<double>());
      };
      const TrainerState& state = recorder->steps[i];
      worst_rate = std::max(worst_rate, difference("lr", state.learning_rate));
      worst_loss = std::max(worst_loss, difference("loss", state.loss));
      worst_norm = std::max(worst_norm, difference("grad_norm", state.grad_norm));
    }
    for (const auto& [name, parameter] : model.parameters())
      if (!name.ends_with("k_lin.bias"))  // rounding noise, divided by its own size
        worst_weight = std::max(
            worst_weight,
            worst_difference_to(parameter, curve.tensors.tensor("adamw/f64/final/" + name)));
    CHECK(worst_rate < 1e-15);
    CHECK(worst_loss < bound.loss);
    CHECK(worst_norm < bound.norm);
    CHECK(worst_weight < bound.weight);

    model.eval();
    const NoGrad no_grad;
    CHECK(worst_difference_to(model.forward(text::pack(curve.rows)),
                              curve.tensors.tensor("adamw/f64/logits_after")) < bound.logit);
  }
}
