// The training loop of Hugging Face's course, "A full training", with train::Accelerator in the
// place of accelerate.Accelerator: the lines of the Python original are beside ours. It trains the
// bits that `classifier train` does with the same options.

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "autograd/node.h"
#include "models/distilbert.h"
#include "optim/make_optimizer.h"
#include "text/tokenizer_files.h"
#include "text/wordpiece_trainer.h"
#include "train/accelerator.h"
#include "train/text_classification.h"

using namespace minim;

struct Arguments {
  std::string train_file = "examples/banking77/train.csv";
  std::string validation_file = "examples/banking77/test.csv";
  std::string optim = "adamw", output_dir;
  int64_t epochs = 3, batch_size = 32, accumulation = 1, vocab_size = 4000;
  double learning_rate = 1e-3;
  uint64_t seed = 42;
};

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
    return train::encode_dataset(data, tokenizer, 128,
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

  // lr_scheduler = get_scheduler("linear", optimizer=optimizer, num_warmup_steps=0,
  //                              num_training_steps=num_training_steps)
  optim::Schedule linear = optim::make_schedule(
      "linear", {.lr = arguments.learning_rate, .total_steps = num_training_steps});

  // train_dataloader, eval_dataloader, model, optimizer, lr_scheduler = accelerator.prepare(...)
  auto [train_loader, eval_loader, model, optimizer, lr_scheduler] =
      accelerator.prepare(train_data_loader, eval_data_loader, base, *any, linear);

  // model.train()
  // for epoch in range(num_epochs):
  //     for batch in train_dataloader:
  //         with accelerator.accumulate(model):
  //             outputs = model(**batch)
  //             loss = outputs.loss
  //             accelerator.backward(loss)
  //             accelerator.clip_grad_norm_(model.parameters(), 1.0)
  //             optimizer.step()
  //             lr_scheduler.step()
  //             optimizer.zero_grad()
  model.train();
  for (int64_t epoch = 0; epoch < arguments.epochs; ++epoch) {
    double total = 0;
    for (const PackedBatch& batch : train_loader) {
      accelerator.accumulate(model);
      const Tensor logits = model.forward(batch);
      const Tensor loss = model.loss(logits, batch.labels);
      accelerator.backward(loss);
      accelerator.clip_grad_norm(model.parameters(), 1.0);
      optimizer.step();
      lr_scheduler.step();
      optimizer.zero_grad();
      total += loss.item();
    }
    accelerator.print("epoch {}: loss {:.4f}, next rate {:.2e}", epoch + 1,
                      total / double(train_loader.size()), lr_scheduler.get_last_lr());
  }

  // metric = evaluate.load("accuracy")
  // model.eval()
  // for batch in eval_dataloader:
  //     with torch.no_grad():
  //         outputs = model(**batch)
  //     predictions = outputs.logits.argmax(dim=-1)
  //     predictions, references = accelerator.gather_for_metrics((predictions, batch["labels"]))
  //     metric.add_batch(predictions=predictions, references=references)
  // accelerator.print(metric.compute())
  train::ConfusionMatrix metric(labels.size());
  model.eval();
  for (const PackedBatch& batch : eval_loader) {
    const NoGrad no_grad;
    const Tensor logits = model.forward(batch);
    const auto [predictions, references] = accelerator.gather_for_metrics(logits, batch.labels);
    metric += train::confusion_matrix({predictions, references});
  }
  accelerator.print("accuracy {:.4f}", metric.accuracy());

  // accelerator.unwrap_model(model).save_pretrained(output_dir)
  // tokenizer.save_pretrained(output_dir)
  if (arguments.output_dir.empty()) return;
  model.save_pretrained(arguments.output_dir);
  text::save_tokenizer(tokenizer, arguments.output_dir);
}

int main(int count, char** values) {
  Arguments a;
  CLI::App app("A training loop of one's own, with train::Accelerator");
  app.option_defaults()->always_capture_default();
  app.add_option("--train-file", a.train_file, "CSV with texts and labels");
  app.add_option("--validation-file", a.validation_file, "The same, to evaluate on");
  app.add_option("--optim", a.optim, "adamw, adafactor, adam8bit, ...");
  app.add_option("--learning-rate", a.learning_rate, "Highest learning rate");
  app.add_option("--num-train-epochs", a.epochs, "Passes over the training data");
  app.add_option("--per-device-train-batch-size", a.batch_size, "Rows of a batch");
  app.add_option("--gradient-accumulation-steps", a.accumulation, "Batches of one update")
      ->check(CLI::PositiveNumber);
  app.add_option("--vocab-size", a.vocab_size, "Pieces of the vocabulary");
  app.add_option("--seed", a.seed, "Of weights, dropout and the order of rows");
  app.add_option("--output-dir", a.output_dir, "Folder for the model");
  CLI11_PARSE(app, count, values);
  try {
    run(a);
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
