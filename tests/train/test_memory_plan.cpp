// The plan of a run's memory, against what runs are seen to take.
#include "optim/make_optimizer.h"
#include "tests/optim/accounting.h"
#include "tests/train/small_model.h"
#include "train/memory_plan.h"

using namespace minim;
using namespace minim::test;
using memory::Category;
using models::BatchShape;
using train::MemoryPlan;
using train::OptimizerChoice;
using train::OptimizerPlan;

namespace {

DistilBertConfig base_cased() {
  DistilBertConfig config;
  config.vocab_size = 28996;
  return config;
}

const OptimizerPlan& find(const MemoryPlan& plan, const std::string& name,
                          const std::string& optim_args = "") {
  for (const OptimizerPlan& optimizer : plan.optimizers)
    if (optimizer.choice.name == name && optimizer.choice.optim_args == optim_args)
      return optimizer;
  FAIL("no plan of " << name);
  return plan.optimizers[0];
}

// Starts the peak anew after the second step, and reads it after the third.
struct PeakOfThirdStep : train::TrainerCallback {
  void on_step_end(const TrainerState& state) override {
    if (state.global_step == 2) memory::reset_peak();
    if (state.global_step != 3) return;
    activations = memory::peak(Category::activations);
    state_bytes = memory::current(Category::optimizer_state);
    all = memory::peak();
  }
  int64_t activations = 0, state_bytes = 0, all = 0;
};

// Checks a plan against a Trainer's third step on rows of these lengths.
void check_run(const DistilBertConfig& config, const std::vector<int64_t>& lengths,
               const OptimizerChoice& choice, int64_t accumulation = 1,
               const std::string& freeze = "") {
  CAPTURE(choice.name);
  CAPTURE(choice.optim_args);
  text::Examples set;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < accumulation; ++i)
    for (const int64_t length : lengths) {
      set.sequences.push_back({.input_ids = std::vector<int32_t>(size_t(length), 5)});
      labels.push_back(0);
    }
  {
    const memory::Scope scope(Category::data);
    set.labels = Tensor::from<int64_t>(labels, {int64_t(labels.size())});
  }
  const int64_t activations = memory::current(Category::activations);
  const int64_t state = memory::current(Category::optimizer_state), all = memory::current();
  DistilBertForSequenceClassification model(config);
  if (!freeze.empty()) model.freeze(freeze);
  const MemoryPlan plan = train::plan_memory(model, BatchShape::of(lengths), {choice},
                                             {.gradient_accumulation_steps = accumulation});

  NamedTensors trained;
  for (const NamedTensor& parameter : model.parameters())
    if (parameter.tensor.requires_grad()) trained.push_back(parameter);
  const auto optimizer = optim::make_optimizer(choice.name, optim::decay_groups(trained, 0.01),
                                               {.optim_args = choice.optim_args});
  TrainingArguments arguments;
  arguments.per_device_train_batch_size = int64_t(lengths.size());
  arguments.gradient_accumulation_steps = accumulation;
  arguments.max_steps = 3;
  arguments.train_sampling_strategy = text::SamplingStrategy::sequential;
  Trainer trainer(model, arguments, set, {}, *optimizer);
  const auto measured = std::make_shared<PeakOfThirdStep>();
  trainer.add_callback(measured);
  trainer.train();
  CHECK(measured->activations - activations == plan.step.activations);
  CHECK(measured->state_bytes - state == plan.optimizers[0].state.bytes);
  CHECK(measured->all - all == plan.optimizers[0].peak);
}

}  // namespace

TEST_CASE("a Trainer's step takes what the plan says, to the byte, under every optimizer") {
  DistilBertConfig config = small_config(0.1);
  config.dim = 72;  // 8-bit blocks end within rows
  config.vocab_size = 200;
  for (const OptimizerChoice& choice : train::all_optimizers())
    check_run(config, {3, 11, 1, 7}, choice);
  check_run(config, {3, 11, 1, 7}, {"adamw", "amsgrad=True"});
  check_run(config, {3, 11, 1, 7}, {"adafactor", "beta1=0.9"});
  check_run(config, {3, 11, 1, 7}, {"sgd", "momentum=0.9"});
  check_run(config, {3, 11, 1, 7}, {"adam8bit", "min_8bit_size=0,block_size=64"});
}

TEST_CASE("so it does with accumulation, frozen parameters, and one token") {
  const DistilBertConfig config = small_config();
  for (const char* optimizer : {"adamw", "adafactor", "adam8bit"}) {
    check_run(config, {3, 11, 1, 7}, {optimizer, ""}, 3);
    check_run(config, {3, 11, 1, 7}, {optimizer, ""}, 1, "distilbert.embeddings.*");
    // So few activations that an update may need more.
    check_run(config, {1}, {optimizer, ""});
  }
  // Matrices of more rows than Adafactor has tiles.
  DistilBertConfig tall = small_config();
  tall.vocab_size = 20000;
  check_run(tall, {1}, {"adafactor", ""});
  check_run(tall, {1}, {"adafactor_torch", ""});
}

TEST_CASE("the table of DistilBERT: what each optimizer keeps, beside the libraries' own") {
  const int64_t before = memory::current();
  const MemoryPlan plan = train::plan_memory(base_cased(), BatchShape::uniform(16, 128));
  CHECK(memory::current() == before);
  CHECK(plan.parameters == 65783042);
  CHECK(plan.trained_parameters == 65783042);
  CHECK(plan.tensors.size() == 104);
  CHECK(plan.optimizers.size() == optim::optimizer_names().size() + 2);

  const optim::StateSize& adamw = find(plan, "adamw").state;
  CHECK(adamw.elements_with_numbers() == 131566188);
  CHECK(adamw.elements_with_numbers() == measured("torch.optim.AdamW")["elements"]);
  CHECK(adamw.bytes + 4 * 104 == measured("torch.optim.AdamW")["bytes"]);

  // transformers keeps two numbers per parameter beside the tensors, step and RMS.
  const optim::StateSize& adafactor = find(plan, "adafactor").state;
  CHECK(adafactor.elements_with_numbers() == measured("transformers Adafactor")["elements"]);
  CHECK(adafactor.elements_with_numbers() == 178712);

  const double mib = 0x1p20;
  CHECK(double(find(plan, "adam8bit").state.bytes) / mib == doctest::Approx(127.797).epsilon(1e-5));
  CHECK(double(find(plan, "adamw8bit", "keep_f32=embeddings").state.bytes) / mib ==
        doctest::Approx(256.79).epsilon(1e-4));
  CHECK(find(plan, "sgd").state.bytes == 0);
  CHECK(find(plan, "adamw").peak - find(plan, "sgd").peak == adamw.bytes);
}

TEST_CASE("a plan has a frozen parameter's weight, but no gradient and no state of it") {
  const auto model = models::model_without_weights(base_cased());
  model.freeze("distilbert.embeddings.*");
  const MemoryPlan plan = train::plan_memory(model, BatchShape::uniform(1, 8));
  const int64_t frozen = (28996 + 512 + 2) * 768;
  CHECK(plan.trained_parameters == 65783042 - frozen);
  CHECK(plan.step.weights == 4 * 65783042);
  CHECK(plan.step.gradients == 4 * plan.trained_parameters);
  CHECK(find(plan, "adamw").state.bytes == 8 * plan.trained_parameters);
}

TEST_CASE("an optimizer that there is not, or its option, is refused by name") {
  const auto error = [](const OptimizerChoice& choice) {
    return error_of(
        [&] { train::plan_memory(small_config(), BatchShape::uniform(1, 3), {choice}); });
  };
  CHECK(error({"adamx", ""}).starts_with("optim: \"adamx\" is unknown; there are adamw, "));
  CHECK(error({"sgd", "speed=1"}).starts_with("optim_args: sgd has no option \"speed\""));
}
