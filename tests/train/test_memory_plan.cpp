// The plan of a run's memory, against what runs are seen to take.
#include "core/memory.h"
#include "optim/make_optimizer.h"
#include "tests/core/contains.h"
#include "tests/optim/accounting.h"
#include "tests/train/small_model.h"
#include "train/memory_ledger.h"
#include "train/memory_options.h"

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

// What a run has beside lengths and optimizer.
struct RunOptions {
  int64_t accumulation = 1;
  std::string freeze = {};
  train::Precision precision = train::Precision::fp32;
  bool recomputes = false;
  int64_t eval_rows = 0;  // evaluated after every step, two at a time
};

// Rows of these lengths, that many times over, all of class 0.
text::Examples rows_of(const std::vector<int64_t>& lengths, int64_t times) {
  text::Examples set;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < times; ++i)
    for (const int64_t length : lengths) {
      set.sequences.push_back({.input_ids = std::vector<int32_t>(size_t(length), 5)});
      labels.push_back(0);
    }
  const memory::Scope scope(Category::data);
  if (!labels.empty()) set.labels = Tensor::from<int64_t>(labels, {int64_t(labels.size())});
  return set;
}

// Checks a plan against a Trainer's third step on rows of these lengths.
void check_run(const DistilBertConfig& config, const std::vector<int64_t>& lengths,
               const OptimizerChoice& choice, const RunOptions& options = {}) {
  CAPTURE(choice.name);
  CAPTURE(choice.optim_args);
  CAPTURE(name_of(options.precision));
  CAPTURE(options.recomputes);
  const text::Examples set = rows_of(lengths, options.accumulation);
  const text::Examples eval_set = rows_of({9}, options.eval_rows);
  const int64_t activations = memory::current(Category::activations);
  const int64_t state = memory::current(Category::optimizer_state), all = memory::current();
  DistilBertForSequenceClassification model(config);
  if (!options.freeze.empty()) model.freeze(options.freeze);
  if (options.recomputes) model.gradient_checkpointing_enable();
  std::optional<train::EvaluationShape> evaluation;
  if (options.eval_rows > 0)
    evaluation = {options.eval_rows,
                  BatchShape::uniform(std::min<int64_t>(2, options.eval_rows), 9)};
  const MemoryPlan plan =
      train::plan_memory(model, BatchShape::of(lengths), {choice},
                         {.gradient_accumulation_steps = options.accumulation,
                          .autocast = train::autocast_dtype_of(options.precision, Device::cpu())},
                         evaluation);
  model.gradient_checkpointing_disable();  // the Trainer's argument enables it

  NamedTensors trained;
  for (const NamedTensor& parameter : model.parameters())
    if (parameter.tensor.requires_grad()) trained.push_back(parameter);
  const auto optimizer = optim::make_optimizer(choice.name, optim::decay_groups(trained, 0.01),
                                               {.optim_args = choice.optim_args});
  TrainingArguments arguments;
  arguments.per_device_train_batch_size = int64_t(lengths.size());
  arguments.per_device_eval_batch_size = 2;
  arguments.gradient_accumulation_steps = options.accumulation;
  arguments.precision = options.precision;
  arguments.gradient_checkpointing = options.recomputes;
  if (evaluation) arguments.eval_strategy = IntervalStrategy::steps;
  arguments.logging_steps = 1;
  arguments.max_steps = 3;
  arguments.train_sampling_strategy = text::SamplingStrategy::sequential;
  Trainer trainer(model, arguments, set, eval_set, *optimizer);
  const auto measured = std::make_shared<PeakOfThirdStep>();
  trainer.add_callback(measured);
  trainer.train();
  int64_t most = plan.step.activations;
  if (evaluation) most = std::max(most, plan.evaluation_memory->activations);
  CHECK(measured->activations - activations == most);
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
    check_run(config, {3, 11, 1, 7}, {optimizer, ""}, {.accumulation = 3});
    check_run(config, {3, 11, 1, 7}, {optimizer, ""}, {.freeze = "distilbert.embeddings.*"});
    // So few activations that an update may need more.
    check_run(config, {1}, {optimizer, ""});
  }
  // Matrices of more rows than Adafactor has tiles.
  DistilBertConfig tall = small_config();
  tall.vocab_size = 20000;
  check_run(tall, {1}, {"adafactor", ""});
  check_run(tall, {1}, {"adafactor_torch", ""});
}

TEST_CASE("so it does in mixed precision, with recomputed blocks and with evaluations between") {
  DistilBertConfig config = small_config(0.1);
  config.n_layers = 3;
  const std::vector<int64_t> lengths = {3, 11, 1, 7};
  for (const train::Precision precision :
       {train::Precision::fp32, train::Precision::bf16, train::Precision::fp16}) {
    check_run(config, lengths, {"adamw", ""}, {.precision = precision, .recomputes = true});
    check_run(config, lengths, {"adam8bit", ""}, {.precision = precision, .eval_rows = 5});
    check_run(config, lengths, {"adafactor", ""},
              {.accumulation = 2,
               .freeze = "distilbert.transformer.layer.0.*",
               .precision = precision,
               .recomputes = true});
    // A batch so small that evaluation takes more.
    check_run(config, {1}, {"adamw", ""}, {.precision = precision, .eval_rows = 400});
  }
}

TEST_CASE("a run's ledger predicts what is measured, category by category") {
  for (const train::Precision precision :
       {train::Precision::fp32, train::Precision::bf16, train::Precision::fp16})
    for (const bool recomputes : {false, true}) {
      CAPTURE(name_of(precision));
      CAPTURE(recomputes);
      std::array<int64_t, memory::categories> before{};
      for (size_t c = 0; c < before.size(); ++c)
        before[c] = memory::current(Category(c));
      const int64_t all_before = memory::current();
      memory::reset_peak();
      DistilBertConfig config = small_config(0.1);
      config.n_layers = 3;
      const DistilBertForSequenceClassification model(config);
      const auto optimizer =
          optim::make_optimizer("adamw", optim::decay_groups(model.parameters(), 0.01), {});
      TrainingArguments arguments{.per_device_train_batch_size = 4,
                                  .per_device_eval_batch_size = 16,
                                  .max_steps = 3,
                                  .gradient_accumulation_steps = 2,
                                  .gradient_checkpointing = recomputes,
                                  .precision = precision,
                                  .label_smoothing_factor = recomputes ? 0.1 : 0.0,
                                  .eval_strategy = IntervalStrategy::steps,
                                  .logging_steps = 1,
                                  .prediction_loss_only = recomputes};
      DistilBertForSequenceClassification trained = model;
      Trainer trainer(trained, arguments, rows_of({9}, 8), rows_of({9}, 20), *optimizer);
      trainer.train();
      const auto tokenizer = small_tokenizer();
      const train::MemoryLedger ledger({trained, tokenizer, *optimizer, arguments},
                                       trainer.state());
      const train::MeasuredMemory measured{Device()};
      for (size_t c = 0; c < before.size(); ++c) {
        CAPTURE(memory::name_of(Category(c)));
        CHECK(ledger.predicted(Category(c)) == measured.peaks[c] - before[c]);
      }
      CHECK(ledger.predicted_peak == measured.peak - all_before);
      CHECK((ledger.step->casts > 0) == (precision != train::Precision::fp32));
    }
}

TEST_CASE("options are set side by side, and named where there is no memory left") {
  DistilBertConfig config = base_cased();
  auto model = models::model_without_weights(config);
  const BatchShape batch = BatchShape::uniform(16, 128);
  const MemoryPlan plan = train::plan_memory(model, batch, {{"adamw", ""}}, {.threads = 2});
  const std::vector<train::OptionPlan> options = train::plan_options(model, plan);
  const auto names = [](const std::vector<train::OptionPlan>& all) {
    std::vector<std::string> some;
    for (const train::OptionPlan& option : all)
      some.push_back(option.option);
    return some;
  };
  CHECK(names(options) ==
        std::vector<std::string>{"", "--gradient-checkpointing",
                                 "--per-device-train-batch-size 8 --gradient-accumulation-steps 2",
                                 "--precision bf16", "--freeze 'distilbert.embeddings.*'"});
  CHECK(options[0].peak == plan.optimizers[0].peak);
  CHECK(options[1].activations < plan.step.activations / 2);
  CHECK(options[2].activations < plan.step.activations * 6 / 10);
  // Frozen embeddings have no state; their gradient comes after the peak.
  CHECK(options[0].peak - options[4].peak >= 8 * int64_t(28996 + 512) * 768);
  const std::string table = train::options_table(options, plan);
  CHECK(contains(table, "as above "));
  CHECK(contains(table, "--gradient-checkpointing "));

  // What a plan has already is left out, and so are uneven batches.
  model.gradient_checkpointing_enable();
  model.freeze("distilbert.embeddings.*");
  const MemoryPlan other = train::plan_memory(model, BatchShape::uniform(3, 8), {{"adamw", ""}},
                                              {.autocast = DType::f16});
  CHECK(names(train::plan_options(model, other)) == std::vector<std::string>{""});

  auto plain = models::model_without_weights(config);
  CHECK(train::arguments_that_save(plain, batch, {}) ==
        std::vector<std::string>{"gradient_checkpointing"});
  plain.gradient_checkpointing_enable();
  CHECK(train::arguments_that_save(plain, batch, {}).empty());
  const auto one_layer = models::model_without_weights(config.with_overrides("n_layers=1"));
  CHECK(train::arguments_that_save(one_layer, batch, {}).empty());
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
