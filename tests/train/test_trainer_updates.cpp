#include "core/parallel.h"
#include "tests/train/small_model.h"

// What one update computes, whatever way it is cut up.
using namespace minim;
using namespace minim::test;

namespace {

// Weights after `max_steps` plain steps at a constant rate, rows in their order. Clipping is off,
// so that nothing hides a gradient of another size, and SGD would hide nothing either: Adam divides
// by the size of the gradient, so the norms are compared as well.
struct Result {
  std::vector<float> weights;
  std::vector<double> losses, norms;
};
Result result_of(text::Examples set, int64_t batch, int64_t accumulation, int64_t max_steps) {
  Run run({.per_device_train_batch_size = batch,
           .max_steps = max_steps,
           .gradient_accumulation_steps = accumulation,
           .learning_rate = 1e-3,
           .lr_scheduler_type = "constant",
           .max_grad_norm = 0,
           .train_sampling_strategy = text::SamplingStrategy::sequential},
          std::move(set));
  run.trainer.train();
  Result result{.weights = run.weights(), .losses = {}, .norms = {}};
  for (const TrainerState& state : run.recorder->steps) {
    result.losses.push_back(state.loss);
    result.norms.push_back(state.grad_norm);
  }
  return result;
}

// Rounding: sums of a few f32 products in another order, relative to values of about 1. Adam
// divides by the size of the gradient, so that a weight whose gradient is rounding noise alone (the
// keys' biases) may move by the rate, 1e-3, each step in either direction; losses do not see them.
void check_equal(const Result& a, const Result& b) {
  REQUIRE(a.losses.size() == b.losses.size());
  for (size_t i = 0; i < a.losses.size(); ++i) {
    CHECK(a.losses[i] == doctest::Approx(b.losses[i]).epsilon(1e-5));
    CHECK(a.norms[i] == doctest::Approx(b.norms[i]).epsilon(1e-4));
  }
}

text::Examples with_ignored(text::Examples set, std::vector<int64_t> rows) {
  auto labels = set.labels.to_vector<int64_t>();
  for (int64_t row : rows)
    labels[size_t(row)] = -100;
  set.labels = Tensor::from(labels, {int64_t(labels.size())});
  return set;
}

}  // namespace

TEST_CASE("k batches of b rows are one of k * b") {
  check_equal(result_of(small_set(24), 4, 2, 6), result_of(small_set(24), 8, 1, 6));
  check_equal(result_of(small_set(24), 1, 12, 4), result_of(small_set(24), 12, 1, 4));
}

TEST_CASE("a ragged end counts by its rows, not by its batches") {
  // Batches of 4, 4 and 2 rows: an update of 8 rows, and one of the 2 that are left.
  check_equal(result_of(small_set(10), 4, 2, 4), result_of(small_set(10), 8, 1, 4));
  // 3 + 3 + 3 + 1 rows in one update. The mean of batch means would count the last row three times.
  check_equal(result_of(small_set(10), 3, 4, 3), result_of(small_set(10), 10, 1, 3));
}

TEST_CASE("dataloader_drop_last leaves out a batch that is not full, and an update of that alone") {
  Run run({.per_device_train_batch_size = 4,
           .num_train_epochs = 3,
           .dataloader_drop_last = true,
           .train_sampling_strategy = text::SamplingStrategy::sequential},
          10);
  run.trainer.train();
  REQUIRE(run.recorder->steps.size() == 6);
  CHECK(run.recorder->steps[1].epoch == 1);
  // Those of the first eight rows, three times.
  int64_t tokens = 0;
  for (const int64_t length : small_set(8).lengths())
    tokens += length;
  CHECK(run.trainer.state().tokens == 3 * tokens);
  CHECK(error_of(
            [] { Run({.per_device_train_batch_size = 11, .dataloader_drop_last = true}, 10); }) ==
        "dataloader_drop_last: 10 rows do not fill a batch of 11, so that none are left; take "
        "smaller batches or keep the last");
}

TEST_CASE("label smoothing is in the loss that is trained, whatever the batches and weights") {
  const auto first = [](int64_t batch, int64_t accumulation, std::vector<double> weights) {
    Run run({.per_device_train_batch_size = batch,
             .max_steps = 1,
             .gradient_accumulation_steps = accumulation,
             .class_weights = std::move(weights),
             .label_smoothing_factor = 0.2},
            8);
    const double loss =
        value_of(train::Evaluator(run.model, 8, nullptr, {}, 0.2).evaluate(small_set(8)).metrics,
                 "eval_loss");
    run.trainer.train();
    // Sums of a few f32 numbers.
    CHECK(run.trainer.state().loss == doctest::Approx(loss).epsilon(1e-6));
    return run.trainer.state().grad_norm;
  };
  const double norm = first(8, 1, {});
  CHECK(first(3, 3, {}) == doctest::Approx(norm).epsilon(1e-5));
  CHECK(first(8, 1, {1, 1}) == doctest::Approx(norm).epsilon(1e-5));
  text::Examples numbers = small_set(4);
  numbers.labels = Tensor::full({4, 2}, 1);
  CHECK(error_of([&] { Run({.label_smoothing_factor = 0.1}, numbers); }) ==
        "label_smoothing_factor: is 0.1, but labels are not one class each; must be 0");
}

TEST_CASE("rows that are labelled -100 count for nothing") {
  const text::Examples set = with_ignored(small_set(16), {1, 4, 5, 6, 7, 14});
  // The second batch of the first update has no labelled row at all.
  check_equal(result_of(set, 4, 2, 4), result_of(set, 8, 1, 4));
}

TEST_CASE("an update without a labelled row has loss 0 and no gradient") {
  const Result result = result_of(with_ignored(small_set(4), {0, 1, 2, 3}), 4, 1, 2);
  CHECK(result.losses == std::vector<double>{0, 0});
  CHECK(result.norms == std::vector<double>{0, 0});
}

TEST_CASE("one seed gives the same bits; another seed, and another data seed, do not") {
  const auto weights = [](uint64_t seed, std::optional<uint64_t> data_seed) {
    Run run({.per_device_train_batch_size = 4,
             .num_train_epochs = 2,
             .learning_rate = 1e-3,
             .seed = seed,
             .data_seed = data_seed},
            20, 0, 0.2);
    run.trainer.train();
    return run.weights();
  };
  const auto first = weights(1, {});
  CHECK(weights(1, {}) == first);
  CHECK(weights(1, 1) == first);
  CHECK(weights(2, 1) == first);  // of the Trainer, the order of rows alone depends on it
  CHECK(weights(1, 2) != first);
}

TEST_CASE("any number of threads gives the same bits") {
  const auto weights = [](int threads) {
    const int before = thread_count();
    set_thread_count(threads);
    Run run({.per_device_train_batch_size = 16,
             .num_train_epochs = 2,
             .gradient_accumulation_steps = 2,
             .learning_rate = 1e-3,
             .eval_strategy = IntervalStrategy::epoch},
            100, 20, 0.2);
    run.trainer.train();
    set_thread_count(before);
    return std::pair(run.weights(), value_of(run.recorder->evaluations.back(), "eval_loss"));
  };
  const auto one = weights(1);
  CHECK(weights(2) == one);
  CHECK(weights(3) == one);
}

TEST_CASE("gradients are scaled to max_grad_norm, and logged as they were") {
  const auto first_step = [](double max_grad_norm) {
    // SGD's update is the gradient itself.
    auto model = small_model();
    optim::AdamW optimizer(model.parameters(), {.lr = 1e-3});
    Trainer trainer(
        model, {.per_device_train_batch_size = 8, .max_steps = 1, .max_grad_norm = max_grad_norm},
        small_set(8), {}, optimizer);
    trainer.train();
    // After one step the average is (1 - beta1) times the gradient.
    double squares = 0;
    for (const auto& item : optimizer.items())
      for (float value : item.state->exp_avg.to_vector<float>())
        squares += double(value) * value;
    return std::pair(trainer.state().grad_norm, std::sqrt(squares) / (1 - 0.9));
  };
  const auto [norm, applied] = first_step(0);
  CHECK(applied == doctest::Approx(norm).epsilon(1e-6));
  const auto [logged, clipped] = first_step(norm / 4);
  CHECK(logged == norm);
  CHECK(clipped == doctest::Approx(norm / 4).epsilon(1e-5));
}

TEST_CASE("frozen parameters stay as they are, without gradient and state") {
  auto model = small_model();
  CHECK(model.freeze("distilbert.embeddings.*") == 4);
  NamedTensors trained;
  int64_t trained_bytes = 0;
  for (const NamedTensor& parameter : model.parameters())
    if (parameter.tensor.requires_grad()) {
      trained.push_back(parameter);
      trained_bytes += parameter.tensor.bytes();
    }
  const auto words = [&] {
    return model.distilbert.embeddings.word_embeddings.weight.to_vector<float>();
  };
  const auto before = words();
  const int64_t state_before = memory::current(memory::Category::optimizer_state);
  optim::AdamW optimizer(trained, {.lr = 1e-2});
  Trainer trainer(model, {.max_steps = 3}, small_set(16), {}, optimizer);
  trainer.train();
  CHECK(words() == before);
  CHECK(!model.distilbert.embeddings.word_embeddings.weight.grad().defined());
  CHECK(memory::current(memory::Category::optimizer_state) - state_before == 2 * trained_bytes);
  CHECK(optimizer.state_size().bytes == 2 * trained_bytes);
}
