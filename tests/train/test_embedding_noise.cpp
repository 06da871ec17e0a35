#include <cmath>

#include "tests/train/small_model.h"

// neftune_noise_alpha: noise on the word embeddings in training (Jain et al., 2023).
using namespace minim;
using namespace minim::test;

namespace {

// What a training forward of the embeddings adds to them, in units of the greatest that it may add.
//
// Words are 0 and positions are 100 times +1, -1, +1, ..: the layer norm divides that by 100, and
// takes out of the noise its mean and its part along the signs, two of `dim` directions.
std::vector<double> noise_of(double alpha, int64_t longest, int64_t sequences) {
  DistilBertConfig config = small_config();
  config.dim = 64;
  DistilBertForSequenceClassification model(config);
  models::DistilBertEmbeddings& embeddings = model.distilbert.embeddings;
  std::ranges::fill(embeddings.word_embeddings.weight.values<float>(), 0.0f);
  const auto positions = embeddings.position_embeddings.weight.values<float>();
  for (size_t i = 0; i < positions.size(); ++i)
    positions[i] = i % 2 == 0 ? 100.0f : -100.0f;
  embeddings.neftune_noise_alpha = alpha;
  text::Examples set;
  for (int64_t s = 0; s < sequences; ++s)
    set.sequences.push_back({.input_ids = std::vector<int32_t>(size_t(s == 0 ? longest : 3), 5)});
  model.train();
  const NoGrad no_grad;
  const Tensor y = embeddings.forward(text::pack(set.sequences));
  const double most = alpha / std::sqrt(double(longest * 64));
  std::vector<double> noise;
  for (const float value : y.to_vector<float>())
    noise.push_back((double(value) - (noise.size() % 2 == 0 ? 1 : -1)) * 100 / most);
  return noise;
}

}  // namespace

TEST_CASE("the noise is uniform, of at most alpha / sqrt(longest sequence * dim)") {
  for (const int64_t longest : {3, 12}) {
    const std::vector<double> noise = noise_of(5, longest, 100);
    double squares = 0, sum = 0, largest = 0;
    for (const double value : noise) {
      squares += value * value;
      sum += value;
      largest = std::max(largest, std::abs(value));
    }
    const auto n = double(noise.size());  // 19,200 numbers at least
    // The mean square of a uniform number in [-1, 1] is 1/3, its standard error 0.002; two of 64
    // directions are missing.
    CHECK(squares / n == doctest::Approx(62.0 / 64 / 3).epsilon(0.03));
    CHECK(std::abs(sum / n) < 0.02);
    CHECK(largest > 0.95);
    CHECK(largest < 1.5);
  }
}

TEST_CASE("noise is drawn anew each time, from the model's generator, and in training alone") {
  auto model = small_model();
  double& alpha = model.distilbert.embeddings.neftune_noise_alpha;
  const PackedBatch batch = text::pack(small_set(4).sequences);
  const NoGrad no_grad;
  const auto logits = [&] { return model.forward(batch).to_vector<float>(); };
  model.train();
  const auto without = logits();
  alpha = 5;
  const Generator before = model.generator();
  const auto first = logits(), second = logits();
  CHECK(first != without);
  CHECK(second != first);
  model.generator() = before;
  CHECK(logits() == first);
  model.eval();
  const Generator at = model.generator();
  CHECK(logits() == without);
  CHECK(model.generator().offset == at.offset);
}

TEST_CASE("a Trainer trains with noise, evaluates without, and leaves none in the model") {
  const auto trained = [](std::optional<double> alpha) {
    auto run = std::make_unique<Run>(TrainingArguments{.max_steps = 3,
                                                       .learning_rate = 1e-2,
                                                       .neftune_noise_alpha = alpha,
                                                       .eval_strategy = IntervalStrategy::epoch},
                                     16, 8);
    run->trainer.train();
    CHECK(run->model.distilbert.embeddings.neftune_noise_alpha == 0);
    return run;
  };
  const auto plain = trained({}), noisy = trained(5);
  CHECK(plain->weights() == trained(0.0)->weights());
  CHECK(plain->weights() != noisy->weights());
  CHECK(noisy->weights() == trained(5)->weights());
  const Metrics again = train::Evaluator(noisy->model, 8, train::classification_metrics)
                            .evaluate(small_set(8))
                            .metrics;
  CHECK(value_of(again, "eval_loss") == value_of(noisy->recorder->evaluations.back(), "eval_loss"));
}
