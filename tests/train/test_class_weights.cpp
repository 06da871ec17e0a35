#include <algorithm>

#include "tests/train/small_model.h"
#include "train/class_weights.h"
#include "train/data_loader.h"

// Data in which one class is rare.
using namespace minim;
using namespace minim::test;
using namespace minim::train;

namespace {

using Weights = std::vector<double>;

// Losses and gradient norms of updates in the rows' order, at a constant rate and without clipping.
struct Steps {
  std::vector<double> losses, norms;
};
Steps steps_of(text::Examples set, Weights class_weights, int64_t batch, int64_t accumulation) {
  Run run({.per_device_train_batch_size = batch,
           .max_steps = 3,
           .gradient_accumulation_steps = accumulation,
           .learning_rate = 1e-3,
           .lr_scheduler_type = "constant",
           .max_grad_norm = 0,
           .train_sampling_strategy = text::SamplingStrategy::sequential,
           .class_weights = std::move(class_weights)},
          std::move(set));
  run.trainer.train();
  Steps steps;
  for (const TrainerState& state : run.recorder->steps) {
    steps.losses.push_back(state.loss);
    steps.norms.push_back(state.grad_norm);
  }
  return steps;
}

// Rounding: sums of a few f32 products in another order.
void check_equal(const Steps& a, const Steps& b) {
  REQUIRE(a.losses.size() == b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) {
    CHECK(a.losses[i] == doctest::Approx(b.losses[i]).epsilon(1e-5));
    CHECK(a.norms[i] == doctest::Approx(b.norms[i]).epsilon(1e-4));
  }
}

// Every row of class 1 three times.
text::Examples with_class_1_thrice(const text::Examples& set) {
  text::Examples more;
  std::vector<int64_t> labels;
  for (size_t row = 0; row < set.sequences.size(); ++row) {
    const int64_t label = set.labels.values<int64_t>()[row];
    for (int copies = label == 1 ? 3 : 1; copies > 0; --copies) {
      more.sequences.push_back(set.sequences[row]);
      labels.push_back(label);
    }
  }
  more.labels = Tensor::from<int64_t>(labels, {int64_t(labels.size())});
  return more;
}

}  // namespace

TEST_CASE("balanced weights give each class the same total") {
  const Tensor labels = Tensor::from<int64_t>({0, 0, 0, 1, -100, 0}, {6});
  // Five labelled rows of two classes: 5 / (2 * 4) and 5 / (2 * 1).
  CHECK(balanced_class_weights(labels, 2) == Weights{0.625, 2.5});
  CHECK(balanced_class_weights(labels, 3)[2] == 0);  // it has no row
  const text::Examples set{.sequences = std::vector<text::TokenSequence>(6), .labels = labels};
  CHECK(balanced_row_weights(set) == Weights{0.625, 0.625, 0.625, 2.5, 0, 0.625});
}

TEST_CASE("a class of weight 3 counts as if each of its rows came three times") {
  const text::Examples set = small_set(10);
  const text::Examples more = with_class_1_thrice(set);
  const auto all = int64_t(more.sequences.size());
  check_equal(steps_of(set, {1, 3}, 10, 1), steps_of(more, {}, all, 1));
  // The common factor does not matter: it is a weighted mean.
  check_equal(steps_of(set, {2, 6}, 10, 1), steps_of(more, {}, all, 1));
}

TEST_CASE("with class weights too, k batches are one, and a ragged end counts by its weight") {
  check_equal(steps_of(small_set(10), {1, 3}, 3, 4), steps_of(small_set(10), {1, 3}, 10, 1));
  check_equal(steps_of(small_set(10), {1, 0}, 1, 10), steps_of(small_set(10), {1, 0}, 10, 1));
}

TEST_CASE("under weighted sampling the classes come equally often, in another order each epoch") {
  text::Examples set = small_set(2000);
  auto labels = std::vector<int64_t>(2000, 0);
  for (size_t row = 0; row < 40; ++row)
    labels[row] = 1;
  set.labels = Tensor::from(labels, {2000});
  const text::Sampler sampler =
      make_sampler(set, {.strategy = text::SamplingStrategy::weighted, .seed = 3});
  const auto rare = std::ranges::count_if(sampler.order(0), [](int64_t row) { return row < 40; });
  // Five standard deviations of a binomial with p = 1/2: 5 * sqrt(2000 / 4) = 112.
  CHECK(std::abs(double(rare) - 1000) < 112);
  CHECK(sampler.order(0) == sampler.order(0));
  CHECK(sampler.order(0) != sampler.order(1));
}

TEST_CASE("class weights are read by name, and what is none is refused") {
  const text::LabelSet classes(std::vector<std::string>{"ham", "spam", "a=b"});
  const Tensor labels = Tensor::from<int64_t>({0, 0, 1, 2}, {4});
  CHECK(parse_class_weights("spam=5,ham=0.5", classes, labels) == Weights{0.5, 5, 1});
  CHECK(parse_class_weights("a=b=2", classes, labels) == Weights{1, 1, 2});
  CHECK(parse_class_weights("balanced", classes, labels) == balanced_class_weights(labels, 3));
  CHECK_THROWS_WITH_AS(parse_class_weights("span=2", classes, labels),
                       "class_weights: there is no class \"span\"; did you mean 'spam'?", Error);
  CHECK_THROWS_WITH_AS(
      parse_class_weights("spam", classes, labels),
      "class_weights: \"spam\" must be NAME=WEIGHT, or all of it the word balanced", Error);
  for (const char* bad : {"spam=-1", "spam=", "spam=x", "spam=nan"})
    CHECK_THROWS_AS(parse_class_weights(bad, classes, labels), Error);
  CHECK_THROWS_WITH_AS(steps_of(small_set(4), {1, 2, 3}, 2, 1),
                       "class_weights: 3 for 2 classes; there must be one for each, and labels "
                       "that are one class each",
                       Error);
  CHECK_THROWS_WITH_AS(steps_of(small_set(4), {1, -2}, 2, 1),
                       "class_weights: must be at least 0, is -2", Error);
}
