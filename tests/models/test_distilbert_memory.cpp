// What a training step takes, predicted from the config and measured in a real step.
#include <numeric>

#include <doctest/doctest.h>

#include "autograd/autocast.h"
#include "autograd/node.h"
#include "optim/clip.h"
#include "tests/core/temporary_folder.h"
#include "tests/models/memory_case.h"
#include "tests/optim/accounting.h"

using namespace minim;
using namespace minim::test;
using memory::Category;
using models::BatchShape;
using models::DistilBertConfig;
using models::DistilBertForSequenceClassification;
using models::StepMemory;

namespace {

struct Measured {
  int64_t activations, workspace, data, gradients, together, casts;
};

// A step as train::Trainer does it, up to the norm of the gradients; not the first, so that
// parameters in autocast's dtype are there.
Measured measure(const DistilBertForSequenceClassification& model,
                 const std::vector<int64_t>& lengths, bool token_types, int64_t micro_batches,
                 std::optional<DType> autocast) {
  const text::Examples examples = make_examples(model.config, lengths, token_types);
  std::vector<int64_t> rows(lengths.size());
  std::iota(rows.begin(), rows.end(), int64_t(0));
  const int64_t weights = memory::current(Category::weights);
  {
    const NoGrad no_grad;
    const Autocast precision(autocast);
    model.forward(text::pack(examples, rows));
  }
  const auto before = [](Category category) { return memory::current(category); };
  const int64_t activations = before(Category::activations), data = before(Category::data);
  const int64_t workspace = before(Category::workspace), gradients = before(Category::gradients);
  const int64_t all = memory::current();
  memory::reset_peak();
  for (int64_t i = 0; i < micro_batches; ++i) {
    const PackedBatch batch = [&] {
      const memory::Scope scope(Category::data);
      return text::pack(examples, rows);
    }();
    const Tensor loss = [&] {
      const Autocast precision(autocast);
      return model.loss(model.forward(batch), batch.labels);
    }();
    const Tensor share = micro_batches == 1 ? loss : loss * 0.5;
    (autocast == DType::f16 ? share * 1024.0 : share).backward();
  }
  optim::gradient_norm(model.parameters());
  const Measured measured = {memory::peak(Category::activations) - activations,
                             memory::peak(Category::workspace) - workspace,
                             memory::peak(Category::data) - data,
                             memory::peak(Category::gradients) - gradients,
                             memory::peak() - all,
                             memory::peak(Category::weights) - weights};
  model.zero_grad();
  return measured;
}

void check_case(const MemoryCase& c) {
  CAPTURE(c.what);
  DistilBertForSequenceClassification model(config_of(c));
  if (!c.freeze.empty()) model.freeze(c.freeze);
  if (c.recomputes) model.gradient_checkpointing_enable();
  BatchShape shape = BatchShape::of(c.lengths);
  shape.token_types = c.token_types;
  const StepMemory predicted = models::rehearse_step(
      model, shape, {.gradient_accumulation_steps = c.micro_batches, .autocast = c.autocast});
  const Measured measured = measure(model, c.lengths, c.token_types, c.micro_batches, c.autocast);
  CHECK(predicted.activations == measured.activations);
  CHECK(predicted.gradients == measured.gradients);
  CHECK(predicted.workspace == measured.workspace);
  CHECK(predicted.data == measured.data);
  CHECK(predicted.together == measured.together);
  CHECK(predicted.casts == measured.casts);
  int64_t parts = 0;
  for (const models::MemoryPart& part : predicted.at_peak)
    parts += part.bytes;
  CHECK(parts == predicted.activations);
}

}  // namespace

const std::vector<int64_t> ragged = {7, 1, 23, 12, 3};

TEST_CASE("the peak of a step is predicted to the byte, whatever the sizes") {
  const MemoryCase cases[] = {
      {"as it is", "", ragged},
      {"one layer", "n_layers=1", ragged},
      {"four layers", "n_layers=4", ragged},
      {"one wide layer", "n_layers=1,dim=64,hidden_dim=32", ragged},
      {"narrow feed-forward", "hidden_dim=4", ragged},
      {"many heads", "n_heads=16", ragged},
      {"a large vocabulary", "vocab_size=5000", ragged},
      {"positions that are not trained", "sinusoidal_pos_embds=true", ragged},
      {"another activation", "activation=relu", ragged},
      {"no dropout", "dropout=0,attention_dropout=0,seq_classif_dropout=0", ragged},
      {"dropout in the head alone", "dropout=0", ragged},
      {"equal lengths", "", {9, 9, 9, 9}},
      {"one sequence", "", {17}},
      {"one token", "", {1}},
      {"sequences of one token", "", {1, 1, 1}},
      {"one token in one layer", "n_layers=1,dim=4,hidden_dim=4", {1}},
      {"long: sums in parts", "", std::vector<int64_t>(20, 40)},
      {"pairs", "", ragged, 2, "", true},
      {"77 labels", "", ragged, 77},
      {"regression", "", ragged, 1},
      {"many numbers", "", ragged, 3, "", false, 1, "regression"},
      {"multi-label", "", ragged, 300, "", false, 1, "multi_label_classification"},
      {"multi-label: losses in parts", "", std::vector<int64_t>(30, 2), 700, "", false, 1,
       "multi_label_classification"},
      {"frozen embeddings", "", ragged, 2, "distilbert.embeddings.*"},
      {"a frozen body", "", ragged, 2, "distilbert.*"},
      {"all but biases frozen", "", ragged, 2, "*weight"},
      {"a frozen block", "n_layers=3", ragged, 2, "distilbert.transformer.layer.1.*"},
      {"accumulation", "", ragged, 2, "", false, 2},
      {"more accumulation", "n_layers=1", ragged, 2, "", false, 4},
  };
  for (const MemoryCase& c : cases)
    check_case(c);
}

TEST_CASE("so it is where blocks are recomputed, and in mixed precision") {
  const std::vector<int64_t> pieces(20, 40);  // sums in parts
  std::vector<MemoryCase> cases = {
      {"as it is", "", ragged},
      {"one layer", "n_layers=1", ragged},
      {"four layers", "n_layers=4", ragged},
      {"a wide layer", "n_layers=3,dim=64,hidden_dim=32", ragged},
      {"no dropout", "n_layers=3,dropout=0,attention_dropout=0", ragged},
      {"long: sums in parts", "", pieces},
      {"one token", "", {1}},
      {"77 labels and pairs", "", ragged, 77, "", true},
      {"regression", "", ragged, 1},
      {"multi-label", "", ragged, 300, "", false, 1, "multi_label_classification"},
      {"frozen embeddings", "n_layers=3", ragged, 2, "distilbert.embeddings.*"},
      {"frozen blocks", "n_layers=3", ragged, 2, "distilbert.transformer.layer.[01].*"},
      {"embeddings and a block frozen", "n_layers=3", ragged, 2, "distilbert.*[s0].*"},
      {"a frozen body", "", ragged, 2, "distilbert.*"},
      {"all but biases frozen", "n_layers=3", ragged, 2, "*weight"},
      {"accumulation", "n_layers=3", ragged, 2, "", false, 2},
  };
  for (MemoryCase& c : cases)
    for (const std::optional<DType> autocast :
         {std::optional<DType>(), std::optional(DType::bf16), std::optional(DType::f16)})
      for (const bool recomputes : {false, true}) {
        if (!autocast && !recomputes) continue;
        CAPTURE(autocast ? name_of(*autocast) : "f32");
        CAPTURE(recomputes);
        c.autocast = autocast;
        c.recomputes = recomputes;
        check_case(c);
      }
}

TEST_CASE("attention's buffers follow the number of threads") {
  const int before = thread_count();
  for (const int threads : {1, 2, 3}) {
    set_thread_count(threads);
    check_case({"threads", "", {40, 3}});
    const DistilBertForSequenceClassification model(config_of({"", "", {}}));
    // A buffer holds the scores of 64 queries, and in the backward their gradients, in f32.
    CHECK(
        models::rehearse_step(model, BatchShape::uniform(1, 40), {.threads = threads}).workspace ==
        2 * 64 * 40 * 4 * threads);
  }
  set_thread_count(before);
}

TEST_CASE("a model without weights has the names and shapes of one with weights, and no memory") {
  for (const char* overrides :
       {"", "n_layers=1", "sinusoidal_pos_embds=true", "dim=48,n_heads=3"}) {
    const DistilBertConfig config = config_of({"", overrides, {}, 5});
    const DistilBertForSequenceClassification with_weights(config);
    const int64_t before = memory::current();
    const auto without = models::model_without_weights(config);
    CHECK(memory::current() == before);
    const NamedTensors expected = with_weights.parameters(), got = without.parameters();
    REQUIRE(got.size() == expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i].name == expected[i].name);
      CHECK(got[i].tensor.shape() == expected[i].tensor.shape());
      CHECK(got[i].tensor.requires_grad() == expected[i].tensor.requires_grad());
    }
  }
}

TEST_CASE("DistilBERT has 65,783,042 parameters in 104 tensors, known without one of them") {
  DistilBertConfig config;
  config.vocab_size = 28996;
  const int64_t before = memory::current();
  const auto model = models::model_without_weights(config);
  CHECK(model.parameter_count() == 65783042);
  const NamedTensors parameters = model.parameters();
  const auto shapes = distilbert();
  REQUIRE(parameters.size() == shapes.size());
  for (size_t i = 0; i < shapes.size(); ++i) {
    CHECK(parameters[i].name == shapes[i].name);
    CHECK(parameters[i].tensor.shape() == shapes[i].shape);
  }
  // 16 x 128 tokens. There is most when the backward has passed the last block, which computes only
  // 16 rows, and works on the activation of the fifth. Kept per token:
  const int64_t blocks =
      5 * (3 + 1 + 2) * 768                // q, k, v; output of the heads; first norm's x and y
      + 5 * 2 * 3072                       // feed-forward before and after the activation
      + 4 * 2 * 768                        // second norm's x and y; the fifth's are done with
      + 5 * 12                             // log-sum-exp per head
      + (4 * 4 + 2) * 1;                   // mean and rstd of the norms
  const int64_t embeddings = 2 * 768 + 2;  // the norm's x, mean and rstd, and the output
  const int64_t on_their_way = 768 + 2 * 3072;  // past the block, and by y and x of the activation
  const StepMemory step =
      models::rehearse_step(model, BatchShape::uniform(16, 128), {.threads = 2});
  CHECK(step.activations == 4 * (16 * 128 * (blocks + embeddings + on_their_way) + 1));  // 1: loss
  CHECK(step.weights == 4 * 65783042);
  CHECK(step.gradients == step.weights);
  CHECK(memory::current() == before);
}

TEST_CASE("recomputing DistilBERT's blocks keeps their inputs, and one block whole") {
  DistilBertConfig config;
  auto model = models::model_without_weights(config);
  model.gradient_checkpointing_enable();
  const StepMemory step =
      models::rehearse_step(model, BatchShape::uniform(16, 128), {.threads = 2});
  // There is most when the fifth block, the first that runs again, is at the backward of its
  // activation. Kept per token:
  const int64_t block = (3 + 1 + 2) * 768 + 2 * 3072 + 12 + 2  // as above, past the second norm
                        + 768;                                 // whose output is held
  const int64_t inputs = 5 * 768;                              // of five blocks
  const int64_t embeddings = 768 + 2;                          // the norm's x, mean and rstd
  // The gradients of the block's output and of the first norm's, by y and x of the activation.
  const int64_t on_their_way = 2 * 768 + 2 * 3072;
  CHECK(step.activations ==
        4 * (16 * 128 * (block + inputs + embeddings + on_their_way) + 1));  // 1: loss
}

TEST_CASE("parameters of linear layers have a copy in 16 bits in mixed precision") {
  DistilBertConfig config;
  const auto model = models::model_without_weights(config);
  const StepMemory step =
      models::rehearse_step(model, BatchShape::uniform(16, 128), {.autocast = DType::bf16});
  // Six blocks of four square layers and a feed-forward, the head's, and the biases of them all.
  const int64_t weights = 6 * (4 * 768 * 768 + 2 * 768 * 3072) + 768 * 768 + 2 * 768;
  const int64_t biases = 6 * (5 * 768 + 3072) + 768 + 2;
  CHECK(step.casts == 2 * (weights + biases));
  CHECK(step.gradients == step.weights);
  CHECK(models::rehearse_step(model, BatchShape::uniform(16, 128)).casts == 0);
}

TEST_CASE("the parts at the peak are named, with who reads them") {
  DistilBertConfig config;
  config.n_layers = 3;
  const auto model = models::model_without_weights(config);
  const StepMemory step = models::rehearse_step(model, BatchShape::uniform(16, 128));
  const auto find = [&](const std::string& what) -> const models::MemoryPart& {
    for (const models::MemoryPart& part : step.at_peak)
      if (part.what == what) return part;
    FAIL("no part " << what);
    return step.at_peak[0];
  };
  const models::MemoryPart& hidden = find("feed-forward: lin1");
  CHECK(hidden.kept_by == "gelu");
  CHECK(hidden.blocks == 2);  // the last block's is done with
  CHECK(hidden.bytes == 2 * 4 * 16 * 128 * 3072);
  CHECK(find("feed-forward: gelu").kept_by == "gelu, linear");
  CHECK(find("gradients on their way").kept_by.empty());
  for (size_t i = 1; i < step.at_peak.size(); ++i)
    CHECK(step.at_peak[i - 1].bytes >= step.at_peak[i].bytes);
}

TEST_CASE("batches and configs that cannot be are refused") {
  const auto model = models::model_without_weights(config_of({"", "", {}}));
  CHECK(error_of([] { BatchShape::uniform(0, 5); }) == "batch: needs at least 1 sequence, got 0");
  CHECK(error_of([] { BatchShape::uniform(5, 0); }) ==
        "batch: a sequence needs at least 1 token, got 0");
  CHECK(
      error_of([] { BatchShape::uniform(1 << 20, 1 << 12); }) ==
      "batch: 1048576 sequences of 4096 tokens are more than the 2^31 - 1 tokens that a batch can "
      "hold");
  CHECK(error_of([] { BatchShape::of({}); }) == "batch: needs at least 1 sequence, got 0");
  const std::vector<int64_t> with_none = {3, 0};
  CHECK(error_of([&] { BatchShape::of(with_none); }) ==
        "batch: a sequence needs at least 1 token, got 0");
  const std::vector<int64_t> too_many = {1 << 30, 1 << 30};
  CHECK(error_of([&] { BatchShape::of(too_many); }) ==
        "batch: sequence 1 goes beyond the 2^31 - 1 tokens that a batch can hold");
  CHECK(error_of([&] { models::rehearse_step(model, BatchShape::uniform(1, 41)); }) ==
        "batch: a sequence of 41 tokens is longer than the model's 40 positions");
  CHECK(error_of([&] {
          models::rehearse_step(model, BatchShape::uniform(1, 4),
                                {.gradient_accumulation_steps = 0});
        }) == "gradient_accumulation_steps: must be at least 1, is 0");
  CHECK(error_of([&] { models::rehearse_evaluation(model, BatchShape::uniform(3, 4), 2); }) ==
        "evaluation: a batch of 3 sequences is more than the 2 rows");
  model.freeze("*");
  CHECK(error_of([&] { models::rehearse_step(model, BatchShape::uniform(1, 4)); }) ==
        "freeze: every parameter is frozen; nothing is left to train");
  CHECK(error_of([] {
          models::model_without_weights(
              config_of({"", "dim=2000000000,vocab_size=2000000000,n_heads=1", {}}));
        }) ==
        "config: a model of 4e+19 parameters fits into no memory; look at vocab_size 2000000000, "
        "dim 2000000000 and hidden_dim 64");
  const auto wide =
      models::model_without_weights(config_of({"", "n_heads=1,hidden_dim=400000", {}}));
  CHECK(error_of([&] { models::rehearse_step(wide, BatchShape::uniform(50'000'000, 40)); }) ==
        "batch: 2000000000 tokens need up to 5.12e+16 bytes of activations, which fit into no "
        "memory; a "
        "smaller batch or shorter sequences need less");
}
