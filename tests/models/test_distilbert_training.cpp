#include "autograd/autocast.h"
#include "core/memory.h"
#include "optim/adamw.h"
#include "tests/models/distilbert_tiny.h"

// The model in training mode.
using namespace minim;
using namespace minim::test;

namespace {

DistilBertForSequenceClassification new_model(uint64_t seed = 42) {
  DistilBertConfig config = DistilBertConfig::preset("tiny");
  config.vocab_size = 60;
  config.dim = 32;
  config.hidden_dim = 64;
  return DistilBertForSequenceClassification(config, {.seed = seed});
}

// Eight texts of 3 to 10 tokens; the label is not a function of the length.
PackedBatch eight_texts() {
  std::vector<text::TokenSequence> texts;
  for (int32_t i = 0; i < 8; ++i) {
    text::TokenSequence sequence{.input_ids = {2}};
    for (int32_t j = 0; j <= i; ++j)
      sequence.input_ids.push_back(5 + (7 * i + 3 * j) % 50);
    sequence.input_ids.push_back(3);
    texts.push_back(sequence);
  }
  return text::pack(texts, Tensor::from<int64_t>({0, 1, 1, 0, 1, 0, 0, 1}, {8}));
}

}  // namespace

TEST_CASE("every parameter gets a gradient, finite and not all zero") {
  const auto model = new_model();
  const PackedBatch batch = eight_texts();
  model.loss(model.forward(batch), batch.labels).backward();
  for (const auto& [name, parameter] : model.parameters()) {
    const auto& which = name;
    CAPTURE(which);
    REQUIRE(parameter.grad().defined());
    CHECK(parameter.grad().shape() == parameter.shape());
    const double square_sum = sum(square(parameter.grad())).item();
    CHECK(std::isfinite(square_sum));
    // Softmax does not see a shift of all keys, so k_lin.bias has none but rounding.
    if (!name.ends_with("k_lin.bias")) CHECK(square_sum > 0);
  }
}

TEST_CASE("gradients add up over two backward passes") {
  const auto model = tiny_model(DType::f64);
  const PackedBatch batch = packed("main");
  for (int pass = 0; pass < 2; ++pass)
    model.loss(model.forward(batch), labels_of(4)).backward();
  const std::string name = "distilbert.transformer.layer.1.ffn.lin1.weight";
  const Tensor once = gradients().tensor("main/f64/" + name);
  CHECK(worst_difference(model.distilbert.layer[1].ffn.lin1.weight.grad(), once * 2.0) < 1e-12);
}

TEST_CASE("a training step repeats bit for bit from the generator's state") {
  const auto model = new_model();
  const PackedBatch batch = eight_texts();
  const Generator before = model.generator();
  const auto step = [&] {
    model.zero_grad();
    const Tensor loss = model.loss(model.forward(batch), batch.labels);
    loss.backward();
    return std::pair(loss.item(), model.classifier.weight.grad().to_vector<float>());
  };
  const auto first = step();
  const Generator after = model.generator();
  const auto second = step();
  CHECK(first.first != second.first);
  model.generator() = before;
  CHECK(step() == first);
  CHECK(model.generator().offset == after.offset);
}

TEST_CASE("two models of one seed are equal, dropout included; another seed differs") {
  const PackedBatch batch = eight_texts();
  const Tensor a = new_model(1).forward(batch), b = new_model(1).forward(batch);
  CHECK(same_bits(a, b));
  CHECK_FALSE(same_bits(a, new_model(2).forward(batch)));
}

TEST_CASE("evaluation draws nothing and is what training is without dropout") {
  const auto model = new_model();
  const PackedBatch batch = eight_texts();
  const Tensor trained = model.forward(batch);
  model.eval();
  const uint64_t offset = model.generator().offset;
  const Tensor evaluated = model.forward(batch);
  CHECK(model.generator().offset == offset);
  CHECK(worst_difference(trained, evaluated) > 0);

  DistilBertConfig config = model.config;
  config.dropout = config.attention_dropout = config.seq_classif_dropout = 0;
  const DistilBertForSequenceClassification without(config);
  CHECK(same_bits(without.forward(batch), evaluated));
}

TEST_CASE("every dropout rate of the config reaches its place") {
  const PackedBatch batch = eight_texts();
  for (double DistilBertConfig::*rate :
       {&DistilBertConfig::dropout, &DistilBertConfig::attention_dropout,
        &DistilBertConfig::seq_classif_dropout}) {
    DistilBertConfig config = new_model().config;
    config.dropout = config.attention_dropout = config.seq_classif_dropout = 0;
    config.*rate = 0.5;
    const DistilBertForSequenceClassification model(config);
    const Tensor trained = model.forward(batch);
    model.eval();
    CHECK(worst_difference(trained, model.forward(batch)) > 0);
  }
}

TEST_CASE("a frozen body stays as it is while the head learns") {
  const auto model = new_model();
  CHECK(model.freeze("distilbert.*") == 36);
  const Tensor words = model.distilbert.embeddings.word_embeddings.weight.clone();
  optim::AdamW optimizer(model.parameters(), {.lr = 1e-2});
  const PackedBatch batch = eight_texts();
  model.loss(model.forward(batch), batch.labels).backward();
  CHECK_FALSE(model.distilbert.embeddings.word_embeddings.weight.grad().defined());
  const Tensor head = model.classifier.weight.clone();
  optimizer.step();
  CHECK(same_bits(model.distilbert.embeddings.word_embeddings.weight, words));
  CHECK_FALSE(same_bits(model.classifier.weight, head));
}

TEST_CASE("a tiny model learns eight texts by heart") {
  const auto model = new_model();
  const PackedBatch batch = eight_texts();
  optim::AdamW optimizer(model.parameters(), {.lr = 3e-3});
  for (int step = 0; step < 150; ++step) {
    model.loss(model.forward(batch), batch.labels).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  model.eval();
  const Tensor logits = model.forward(batch);
  CHECK(model.loss(logits, batch.labels).item() < 0.01);
  CHECK(argmax(logits.detach()).to_vector<int64_t>() == batch.labels.to_vector<int64_t>());
}

TEST_CASE("gradient checkpointing changes no bit of values, gradients and dropout, in any dtype") {
  DistilBertConfig config = DistilBertConfig::preset("tiny").with_overrides("n_layers=3,dim=32");
  config.vocab_size = 60;
  const PackedBatch batch = eight_texts();
  for (const std::optional<DType> autocast :
       {std::optional<DType>(), std::optional(DType::bf16), std::optional(DType::f16)}) {
    DistilBertForSequenceClassification plain(config), recomputes(config);
    recomputes.gradient_checkpointing_enable();
    CHECK(recomputes.is_gradient_checkpointing());
    for (int pass = 0; pass < 2; ++pass) {  // the second adds to the gradients
      std::vector<Tensor> losses;
      std::vector<int64_t> kept;
      for (const auto* model : {&plain, &recomputes}) {
        const int64_t before = memory::current(memory::Category::activations);
        {
          const Autocast precision(autocast);
          losses.push_back(model->loss(model->forward(batch), batch.labels));
        }
        kept.push_back(memory::current(memory::Category::activations) - before);
        losses.back().backward();
      }
      CHECK(same_bits(losses[0], losses[1]));
      CHECK(kept[1] < kept[0] / 2);  // two blocks of three
    }
    const NamedTensors expected = plain.parameters(), got = recomputes.parameters();
    for (size_t i = 0; i < got.size(); ++i) {
      CAPTURE(got[i].name);
      CHECK(same_bits(got[i].tensor.grad(), expected[i].tensor.grad()));
    }
    CHECK(plain.generator().offset == recomputes.generator().offset);
  }
}

TEST_CASE("gradient checkpointing is for training: evaluation and a model without it keep all") {
  auto model = new_model();
  const PackedBatch batch = eight_texts();
  const auto kept = [&] {
    const int64_t before = memory::current(memory::Category::activations);
    const Tensor states = sum(model.distilbert.forward(batch));
    return memory::current(memory::Category::activations) - before;
  };
  model.gradient_checkpointing_enable();
  const int64_t less = kept();
  model.eval();
  const int64_t all = kept();
  CHECK(less < all);
  model.train();
  model.gradient_checkpointing_disable();
  CHECK_FALSE(model.is_gradient_checkpointing());
  CHECK(kept() > less);
}
