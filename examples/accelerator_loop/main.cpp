// The training loop of Hugging Face's course, "A full training", with train::Accelerator in the
// place of accelerate.Accelerator: the lines of the Python original are beside ours. It trains the
// bits that `classifier train` does with the same options, and its output folder is one that
// `classifier compare` sets beside others.

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "autograd/node.h"
#include "models/distilbert.h"
#include "optim/make_optimizer.h"
#include "text/wordpiece_trainer.h"
#include "train/accelerator.h"
#include "train/run_folder.h"
#include "train/stopwatch.h"
#include "train/text_classification.h"

using namespace minim;

struct Arguments {
  std::string train_file = "examples/banking77/train.csv";
  std::string validation_file = "examples/banking77/test.csv";
  std::string optim = "adamw", config_overrides, output_dir;
  int64_t epochs = 3, batch_size = 32, accumulation = 1, vocab_size = 4000;
  double learning_rate = 1e-3, warmup_ratio = 0;
  uint64_t seed = 42;

  // The same for the files of a run.
  train::TrainingArguments for_records() const {
    train::TrainingArguments all;
    all.per_device_train_batch_size = batch_size;
    all.num_train_epochs = double(epochs);
    all.gradient_accumulation_steps = accumulation;
    all.optim = optim;
    all.learning_rate = learning_rate;
    all.warmup_ratio = warmup_ratio;
    all.seed = seed;
    all.eval_strategy = train::IntervalStrategy::epoch;
    all.save_only_model = true;
    return all;
  }

  // Those that are not the Trainer's, as `classifier train` names them.
  train::NamedArguments further() const {
    const auto text = [](const std::string& value) -> train::ArgumentValue {
      return value.empty() ? train::ArgumentValue(nullptr) : value;
    };
    return {{"training_loop", "Accelerator"},
            {"preset", "tiny"},
            {"config_overrides", text(config_overrides)},
            {"vocab_size", vocab_size},
            {"train_file", train_file},
            {"validation_file", validation_file},
            {"output_dir", output_dir},
            {"max_seq_length", max_length}};
  }

  static constexpr int64_t max_length = 128;
};

// What all_results.json has of an evaluation.
train::Metrics results_of(const train::ConfusionMatrix& metric, double epoch) {
  const train::Scores macro = metric.scores(train::Average::macro);
  return {{"eval_accuracy", metric.accuracy()}, {"eval_precision", macro.precision},
          {"eval_recall", macro.recall},        {"eval_f1", macro.f1},
          {"eval_mcc", metric.mcc()},           {"epoch", epoch}};
}

void run(const Arguments& arguments) {
  // Texts, their labels and a vocabulary; the course has them from its hub.
  const text::Dataset train_data = text::read_dataset(arguments.train_file);
  const text::Dataset eval_data =
      text::read_dataset(arguments.validation_file, {.role = text::Role::evaluate});
  std::vector<std::string> notes;
  const auto labels = text::collect_labels(train_data, text::LabelOrder::numeric, notes);
  text::WordPieceTrainer pieces(
      {.vocab_size = arguments.vocab_size, .normalizer = {.lowercase = true}});
  for (const text::Row& row : train_data.rows)
    pieces.add(row.text);
  const text::Tokenizer tokenizer(text::TokenizerConfig::bert(pieces.train(), true));
  const auto encode = [&](const text::Dataset& data) {
    return train::encode_dataset(data, tokenizer, Arguments::max_length,
                                 train::ProblemType::single_label_classification, labels)
        .examples;
  };

  // accelerator = Accelerator(gradient_accumulation_steps=...)
  train::Accelerator accelerator({.gradient_accumulation_steps = arguments.accumulation});

  // model = AutoModelForSequenceClassification.from_pretrained(checkpoint, num_labels=...)
  auto config = models::DistilBertConfig::preset("tiny");
  config.vocab_size = tokenizer.vocab_size();
  config.pad_token_id = tokenizer.pad_token_id().value_or(0);
  config.labels = labels.names();
  config.problem_type = "single_label_classification";
  if (!arguments.config_overrides.empty())
    config = config.with_overrides(arguments.config_overrides);
  models::DistilBertForSequenceClassification base(config, {.seed = arguments.seed});

  // optimizer = AdamW(model.parameters(), lr=...)
  const auto any = optim::make_optimizer(arguments.optim, optim::decay_groups(base, 0.0),
                                         {.learning_rate = arguments.learning_rate});

  // train_dataloader = DataLoader(train, shuffle=True, batch_size=...)
  // eval_dataloader = DataLoader(validation, batch_size=...)
  train::DataLoader train_data_loader(encode(train_data),
                                      {.batch_size = arguments.batch_size, .seed = arguments.seed});
  train::DataLoader eval_data_loader(
      encode(eval_data), {.batch_size = 8, .strategy = text::SamplingStrategy::sequential});

  // num_training_steps = num_epochs * len(train_dataloader)
  const int64_t updates =
      (train_data_loader.size() + arguments.accumulation - 1) / arguments.accumulation;
  const int64_t num_training_steps = arguments.epochs * updates;

  // lr_scheduler = get_scheduler("linear", optimizer=optimizer, num_warmup_steps=...,
  //                              num_training_steps=num_training_steps)
  const train::TrainingArguments records = arguments.for_records();
  optim::Schedule linear =
      optim::make_schedule("linear", records.schedule_options(num_training_steps));

  // train_dataloader, eval_dataloader, model, optimizer, lr_scheduler = accelerator.prepare(...)
  auto [train_loader, eval_loader, model, optimizer, lr_scheduler] =
      accelerator.prepare(train_data_loader, eval_data_loader, base, *any, linear);

  // for epoch in range(num_epochs):
  //     model.train()
  //     for batch in train_dataloader:
  //         with accelerator.accumulate(model):
  //             outputs = model(**batch)
  //             loss = outputs.loss
  //             accelerator.backward(loss)
  //             accelerator.clip_grad_norm_(model.parameters(), 1.0)
  //             optimizer.step()
  //             lr_scheduler.step()
  //             optimizer.zero_grad()
  const train::Stopwatch whole;
  train::TrainerState state;
  train::ConfusionMatrix metric(labels.size());
  double total = 0;
  for (int64_t epoch = 0; epoch < arguments.epochs; ++epoch) {
    model.train();
    const double before = total;
    for (const PackedBatch& batch : train_loader) {
      accelerator.accumulate(model);
      const Tensor logits = model.forward(batch);
      const Tensor loss = model.loss(logits, batch.labels);
      accelerator.backward(loss);
      accelerator.clip_grad_norm(model.parameters(), 1.0);
      const train::Stopwatch stepping;
      optimizer.step();
      state.optimizer_seconds += stepping.seconds();
      lr_scheduler.step();
      optimizer.zero_grad();
      total += loss.item();
    }
    accelerator.print("epoch {}: loss {:.4f}, next rate {:.2e}", epoch + 1,
                      (total - before) / double(train_loader.size()), lr_scheduler.get_last_lr());

    //   metric = evaluate.load("accuracy")
    //   model.eval()
    //   for batch in eval_dataloader:
    //       with torch.no_grad():
    //           outputs = model(**batch)
    //       predictions = outputs.logits.argmax(dim=-1)
    //       predictions, references = accelerator.gather_for_metrics((predictions,
    //       batch["labels"])) metric.add_batch(predictions=predictions, references=references)
    //   accelerator.print(metric.compute())
    metric = train::ConfusionMatrix(labels.size());
    model.eval();
    for (const PackedBatch& batch : eval_loader) {
      const NoGrad no_grad;
      const Tensor logits = model.forward(batch);
      const auto [predictions, references] = accelerator.gather_for_metrics(logits, batch.labels);
      metric += train::confusion_matrix({predictions, references});
    }
    accelerator.print("accuracy {:.4f}", metric.accuracy());
    // What `classifier compare` draws curves of.
    const auto passed = double(epoch + 1);
    state.log_history.push_back(
        {{"loss", (total - before) / double(train_loader.size())}, {"epoch", passed}});
    state.log_history.push_back(results_of(metric, passed));
  }
  const double seconds = whole.seconds();

  // accelerator.unwrap_model(model).save_pretrained(output_dir)
  // tokenizer.save_pretrained(output_dir)
  // with open(os.path.join(output_dir, "all_results.json"), "w") as f:
  //     json.dump(all_results, f)
  if (arguments.output_dir.empty()) return;
  state.global_step = state.max_steps = num_training_steps;
  state.epoch = state.num_train_epochs = double(arguments.epochs);
  const double batches = double(train_loader.size()) * state.epoch;
  const double rows = double(train_data.rows.size()) * state.epoch;
  train::save_run(arguments.output_dir, {base, tokenizer, *any, records, arguments.further()},
                  state,
                  {{"train_runtime", seconds},
                   {"train_samples_per_second", rows / seconds},
                   {"train_steps_per_second", double(num_training_steps) / seconds},
                   {"train_loss", total / batches},
                   {"epoch", state.epoch}},
                  results_of(metric, state.epoch));
}

int main(int count, char** values) {
  Arguments a;
  CLI::App app("A training loop of one's own, with train::Accelerator");
  app.option_defaults()->always_capture_default();
  app.add_option("--train-file", a.train_file, "CSV with texts and labels");
  app.add_option("--validation-file", a.validation_file, "The same, to evaluate on");
  app.add_option("--optim", a.optim, "adamw, adafactor, adam8bit, ...");
  app.add_option("--learning-rate", a.learning_rate, "Highest learning rate");
  app.add_option("--warmup-ratio", a.warmup_ratio, "Part of the steps in which the rate rises");
  app.add_option("--num-train-epochs", a.epochs, "Passes over the training data")
      ->check(CLI::PositiveNumber);
  app.add_option("--per-device-train-batch-size", a.batch_size, "Rows of a batch");
  app.add_option("--gradient-accumulation-steps", a.accumulation, "Batches of one update")
      ->check(CLI::PositiveNumber);
  app.add_option("--vocab-size", a.vocab_size, "Pieces of the vocabulary");
  app.add_option("--seed", a.seed, "Of weights, dropout and the order of rows");
  app.add_option("--config-overrides", a.config_overrides,
                 "Changes to the tiny preset's config, such as dropout=0.2");
  app.add_option("--output-dir", a.output_dir, "Folder for the model and its records");
  CLI11_PARSE(app, count, values);
  try {
    run(a);
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
