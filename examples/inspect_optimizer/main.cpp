// What three optimizers remember of one weight. A small classifier is trained three times, from the
// same weights on the same batches, under AdamW, Adafactor and 8-bit Adam; one weight is followed
// through every step: its gradient, what the optimizer keeps of it, and the update that follows.

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "models/distilbert.h"
#include "optim/adafactor.h"
#include "optim/adam8bit.h"
#include "optim/adamw.h"
#include "text/sampler.h"
#include "text/wordpiece_trainer.h"
#include "train/sparkline.h"
#include "train/text_classification.h"

using namespace minim;

struct Arguments {
  std::string train_file = "examples/banking77/train.csv";
  std::string parameter = "distilbert.transformer.layer.0.attention.q_lin.weight";
  int64_t row = 3, column = 5, steps = 60;
};

// --- what the typed state of each optimizer holds of weight [row, column] of a matrix ---

struct Kept {
  double exp_avg, exp_avg_sq;
};

// AdamW: a mean gradient and a mean square for each weight.
Kept kept(const optim::AdamWRule::State& state, int64_t row, int64_t column) {
  const int64_t i = row * state.exp_avg.size(1) + column;
  return {state.exp_avg.data<float>()[i], state.exp_avg_sq.data<float>()[i]};
}

// Adafactor: no mean gradient; mean squares of whole rows and columns, whose product says what
// the weight's own may be.
Kept kept(const optim::AdafactorRule::State& state, int64_t row, int64_t column) {
  const auto rows = state.exp_avg_sq_row.values<float>();
  double mean = 0;
  for (const float r : rows)
    mean += double(r) / double(rows.size());
  return {NAN, rows[size_t(row)] * state.exp_avg_sq_col.data<float>()[column] / mean};
}

// 8-bit Adam: a code for each weight, which stands for a fraction of the largest number in its
// block of 256. Tensors of fewer than 4096 elements are not coded.
Kept kept(const optim::Adam8bitRule::State& state, int64_t row, int64_t column) {
  const int64_t i = row * state.exp_avg.size(1) + column, block = i / 256;
  if (state.exp_avg.dtype() != DType::u8)
    return {state.exp_avg.data<float>()[i], state.exp_avg_sq.data<float>()[i]};
  const optim::MomentMaps maps = optim::moment_maps("minim", "dynamic");
  const uint8_t code = state.exp_avg.data<uint8_t>()[i],
                code_sq = state.exp_avg_sq.data<uint8_t>()[i];
  return {maps.exp_avg.value(code) * state.exp_avg_absmax.data<float>()[block],
          maps.exp_avg_sq.value(code_sq) * state.exp_avg_sq_absmax.data<float>()[block]};
}

// --- training, with a look at the weight in every step ---

struct Trace {
  std::vector<double> gradient, exp_avg, exp_avg_sq, update, loss;
  double worst = 0;  // largest difference of exp_avg from what it is before it is coded
  optim::StateSize state;
};

template <class Optimizer>
Trace follow(const Arguments& arguments, const models::DistilBertConfig& config,
             const text::Examples& examples, const typename Optimizer::Options& options) {
  const models::DistilBertForSequenceClassification model(config, {.seed = 42});
  Optimizer optimizer(model.parameters(), options);
  Tensor weight;
  for (const auto& [name, parameter, state] : optimizer.items())
    if (name == arguments.parameter) weight = parameter;
  check(weight.defined(), "--parameter {}: the model has none of that name", arguments.parameter);
  const int64_t row = arguments.row, column = arguments.column;
  check(weight.rank() == 2 && row >= 0 && row < weight.size(0) && column >= 0 &&
            column < weight.size(1),
        "--row {} --column {}: {} is {}, must be a matrix that has them", row, column,
        arguments.parameter, weight.shape());
  const int64_t i = row * weight.size(1) + column;

  const text::Sampler sampler(int64_t(examples.sequences.size()), {.batch_size = 16});
  Trace trace;
  for (int64_t step = 0; step < arguments.steps; ++step) {
    const int64_t epoch = step / sampler.batches_per_epoch();
    const auto rows = sampler.batches(epoch)[size_t(step % sampler.batches_per_epoch())];
    const PackedBatch batch = text::pack(examples, rows);
    const Tensor loss = model.loss(model.forward(batch), batch.labels);
    loss.backward();
    const double gradient = weight.grad().data<float>()[i], before = weight.data<float>()[i];
    optimizer.step();
    optimizer.zero_grad();

    const auto [exp_avg, exp_avg_sq] = kept(optimizer.state(arguments.parameter), row, column);
    const double last = step == 0 ? 0 : trace.exp_avg.back();
    trace.worst = std::max(trace.worst, std::abs(exp_avg - (0.9 * last + 0.1 * gradient)));
    trace.gradient.push_back(gradient);
    trace.exp_avg.push_back(exp_avg);
    trace.exp_avg_sq.push_back(exp_avg_sq);
    trace.update.push_back(weight.data<float>()[i] - before);
    trace.loss.push_back(loss.item());
  }
  trace.state = optimizer.state_size();
  return trace;
}

// --- what came of it, side by side ---

void print_curves(const char* name, const std::vector<Trace>& traces,
                  std::vector<double> Trace::*values) {
  std::string curves = fmt::format("{:12}", name), ranges(12, ' ');
  for (const Trace& trace : traces) {
    const auto [low, high] = std::ranges::minmax(trace.*values);
    const bool is_kept = !std::isnan((trace.*values).front());
    curves += fmt::format("{:28}", is_kept ? train::sparkline(trace.*values, 24) : "");
    ranges +=
        fmt::format("{:28}", is_kept ? fmt::format("{:.2g} to {:.2g}", low, high) : "not kept");
  }
  fmt::print("{}\n{}\n", curves, ranges);
}

void print_numbers(const char* name, const std::vector<Trace>& traces,
                   int64_t optim::StateSize::*number) {
  fmt::print("{:12}{:<28}{:<28}{}\n", name, traces[0].state.*number, traces[1].state.*number,
             traces[2].state.*number);
}

void run(const Arguments& arguments) {
  text::Dataset data = text::read_dataset(arguments.train_file);
  data.rows.resize(std::min<size_t>(data.rows.size(), 1000));
  std::vector<std::string> notes;
  const text::LabelSet labels = text::collect_labels(data, text::LabelOrder::numeric, notes);
  text::WordPieceTrainer pieces({.vocab_size = 500, .normalizer = {.lowercase = true}});
  for (const text::Row& row : data.rows)
    pieces.add(row.text);
  const text::Tokenizer tokenizer(text::TokenizerConfig::bert(pieces.train(), true));
  const auto type = train::ProblemType::single_label_classification;
  const text::Examples examples = train::encode_dataset(data, tokenizer, 32, type, labels).examples;
  auto config = models::DistilBertConfig::preset("tiny").with_overrides(
      "dim=64,hidden_dim=128,n_heads=4");  // 64 x 64: just enough elements to be coded
  config.vocab_size = tokenizer.vocab_size();
  config.labels = labels.names();

  const std::vector<Trace> traces = {
      follow<optim::AdamW>(arguments, config, examples, {.lr = 1e-3, .weight_decay = 0}),
      follow<optim::Adafactor>(arguments, config, examples,
                               {.lr = 1e-3, .scale_parameter = false, .relative_step = false}),
      follow<optim::Adam8bit>(arguments, config, examples, {.lr = 1e-3})};
  fmt::print("{} [{}, {}], {} steps\n\n", arguments.parameter, arguments.row, arguments.column,
             arguments.steps);
  fmt::print("{:12}{:28}{:28}{}\n", "", "AdamW", "Adafactor", "Adam8bit");
  print_curves("gradient", traces, &Trace::gradient);
  print_curves("exp_avg", traces, &Trace::exp_avg);
  print_curves("exp_avg_sq", traces, &Trace::exp_avg_sq);
  print_curves("update", traces, &Trace::update);
  print_curves("loss", traces, &Trace::loss);
  print_numbers("elements", traces, &optim::StateSize::elements);
  print_numbers("bytes", traces, &optim::StateSize::bytes);
  fmt::print(
      "\nexp_avg is 0.9 times itself plus 0.1 times the gradient. What is kept of that is off "
      "by\n"
      "at most {:.2g} under AdamW, which is the rounding of f32, and by {:.2g} in 8 bits.\n",
      traces[0].worst, traces[2].worst);
}

int main(int count, char** values) {
  Arguments arguments;
  CLI::App app("Follows one weight through AdamW, Adafactor and 8-bit Adam");
  app.option_defaults()->always_capture_default();
  app.add_option("--train-file", arguments.train_file, "CSV with texts and labels");
  app.add_option("--parameter", arguments.parameter, "Full name of a matrix of the model");
  app.add_option("--row", arguments.row, "Row of the weight in it");
  app.add_option("--column", arguments.column, "Its column");
  app.add_option("--steps", arguments.steps, "Updates")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, count, values);
  try {
    run(arguments);
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
