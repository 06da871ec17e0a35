// What the Trainer costs beside model and optimizer: data loading, gathering of losses, checks,
// log entries at every update, progress bar, JSON log, TensorBoard and signal handling. A bare loop
// on batches that are packed already makes a step between any two updates of the Trainer, on a
// model of its own; medians of these pairs.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "bench/timing.h"
#include "core/parallel.h"
#include "models/distilbert.h"
#include "optim/adamw.h"
#include "optim/clip.h"
#include "text/packing.h"
#include "train/interrupt.h"
#include "train/progress.h"
#include "train/run_folder.h"
#include "train/tensorboard.h"
#include "train/trainer.h"

using namespace minim;
using bench::median;
using bench::now;
using Model = models::DistilBertForSequenceClassification;

namespace {

constexpr int64_t warm_up = 2;

struct Case {
  const char* preset;
  int64_t sequences, length, updates;
};

text::Examples make_set(const Case& of, int64_t vocabulary) {
  text::Examples set;
  std::vector<int64_t> labels;
  for (int64_t s = 0; s < of.sequences * (of.updates + warm_up); ++s) {
    text::TokenSequence sequence;
    for (int64_t t = 0; t < of.length; ++t)
      sequence.input_ids.push_back(int32_t((s * 7919 + t * 104729) % vocabulary));
    set.sequences.push_back(std::move(sequence));
    labels.push_back(s % 2);
  }
  set.labels = Tensor::from(labels, {int64_t(labels.size())});
  return set;
}

// Makes a step of the bare loop after each update of the Trainer, and times both.
class Alternate : public train::TrainerCallback {
 public:
  Alternate(const Case& of, const models::DistilBertConfig& config, const text::Examples& set)
      : model_(config), optimizer_(optim::decay_groups(model_, 0.0), {.lr = 5e-5}) {
    model_.train();
    std::vector<int64_t> rows(size_t(of.sequences));
    for (int64_t first = 0; first < int64_t(set.sequences.size()); first += of.sequences) {
      std::iota(rows.begin(), rows.end(), first);
      batches_.push_back(text::pack(set, rows));
    }
  }

  void on_train_begin(const train::TrainerState&) override { left_ = now(); }

  void on_step_end(const train::TrainerState& state) override {
    const double entered = now(), trainers = entered - left_;
    const double bare = step(batches_[size_t(state.global_step - 1)]);
    if (state.global_step > warm_up) {
      trainer.push_back(trainers);
      loop.push_back(bare);
    }
    left_ = now();
  }

  std::vector<double> trainer, loop;  // seconds of each update

 private:
  double step(const PackedBatch& batch) {
    const double start = now();
    const Tensor loss = model_.loss(model_.forward(batch), batch.labels);
    loss.backward();
    const double norm = optim::gradient_norm(model_.parameters());
    optimizer_.step(5e-5, optim::clip_coefficient(norm, 1.0));
    optimizer_.zero_grad();
    return now() - start;
  }

  Model model_;
  optim::AdamW optimizer_;
  std::vector<PackedBatch> batches_;
  double left_ = 0;
};

void measure(const Case& of) {
  models::DistilBertConfig config = models::DistilBertConfig::preset(of.preset);
  const text::Examples set = make_set(of, config.vocab_size);
  Model model(config);
  optim::AdamW optimizer(optim::decay_groups(model, 0.0), {.lr = 5e-5});
  train::Trainer trainer(
      model,
      {.per_device_train_batch_size = of.sequences, .num_train_epochs = 1, .logging_steps = 1}, set,
      {}, optimizer);
  const std::string folder =
      std::filesystem::temp_directory_path() / fmt::format("minim-bench-{}", ::getpid());
  std::FILE* nowhere = std::fopen("/dev/null", "w");
  const auto alternate = std::make_shared<Alternate>(of, config, set);
  trainer.add_callback(std::make_shared<train::ProgressCallback>(nowhere, nowhere, true));
  trainer.add_callback(std::make_shared<train::JsonLogCallback>(folder));
  trainer.add_callback(std::make_shared<train::TensorBoardCallback>(folder + "/runs"));
  trainer.add_callback(std::make_shared<train::InterruptCallback>());
  trainer.add_callback(alternate);
  trainer.train();
  std::fclose(nowhere);
  std::filesystem::remove_all(folder);

  std::vector<double> more;
  for (size_t i = 0; i < alternate->loop.size(); ++i)
    more.push_back(alternate->trainer[i] - alternate->loop[i]);
  const double bare = median(alternate->loop), overhead = median(more);
  fmt::print("{:5} {:3} x {:3} tokens  {:9.3f} ms  {:9.3f} ms  {:+8.3f} ms  {:+6.2f} %\n",
             of.preset, of.sequences, of.length, 1e3 * bare, 1e3 * median(alternate->trainer),
             1e3 * overhead, 100 * overhead / bare);
}

}  // namespace

int main() {
  fmt::print("{} threads, medians           bare loop       Trainer    difference of pairs\n",
             thread_count());
  for (const Case& of : {Case{"tiny", 32, 16, 301}, Case{"base", 16, 128, 9}})
    measure(of), std::fflush(stdout);
  return 0;
}
