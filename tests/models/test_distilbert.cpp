#include "core/memory.h"
#include "tests/models/distilbert_tiny.h"

// Numbers of the forward pass, against transformers.
using namespace minim;
using namespace minim::test;

namespace {

const char* const cases[] = {"main",         "holes",      "left_padding",
                             "no_mask",      "cls_only",   "cls_only_among_others",
                             "batch_of_one", "full_length"};

PackedBatch pack_ids(const std::vector<std::vector<int32_t>>& sequences) {
  std::vector<text::TokenSequence> all;
  for (const auto& ids : sequences)
    all.push_back({.input_ids = ids});
  return text::pack(all);
}

}  // namespace

TEST_CASE("logits equal those of transformers for padded, masked and full-length input") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto model = tiny_model(dtype);
    for (const std::string name : cases) {
      CAPTURE(name);
      const Tensor logits = model.forward(packed(name));
      CHECK(logits.dtype() == dtype);
      CHECK(logits.shape() == io().tensor(name + "/f64/logits").shape());
      CHECK(worst_difference(logits, io().tensor(name + "/f64/logits")) < tolerance(dtype));
    }
  }
}

TEST_CASE("hidden states equal those of transformers after the embeddings and each block") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto model = tiny_model(dtype);
    const Tensor mask = io().tensor("main/attention_mask");
    const Tensors states = model.distilbert.hidden_states(packed("main"));
    REQUIRE(states.size() == 4);
    for (const auto& [index, name] : {std::pair(0, "embeddings"), std::pair(1, "hidden.1"),
                                      std::pair(2, "hidden.2"), std::pair(3, "hidden.3")}) {
      const auto& which = name;
      CAPTURE(which);
      const Tensor expected = unpadded(io().tensor(std::string("main/f64/") + name), mask);
      CHECK(worst_difference(states[size_t(index)], expected) < tolerance(dtype));
    }
    CHECK(same_bits(model.distilbert.forward(packed("main")), states[3]));
  }
}

TEST_CASE("last hidden states equal those of transformers in every case") {
  const auto model = tiny_model(DType::f64);
  for (const std::string name : {"holes", "no_mask", "cls_only", "batch_of_one", "full_length"}) {
    CAPTURE(name);
    const Tensor expected =
        unpadded(io().tensor(name + "/f64/hidden.3"), padded_input(name).attention_mask);
    CHECK(worst_difference(model.distilbert.forward(packed(name)), expected) < 1e-12);
  }
}

TEST_CASE("without a mask pads are masked, with a notice") {
  const auto model = tiny_model(DType::f64);
  text::PaddedInput input = padded_input("main");
  input.attention_mask = Tensor();
  std::vector<std::string> notices;
  const PackedBatch batch = text::pack_padded(input, 0, notices);
  REQUIRE(notices.size() == 1);
  CHECK(notices[0].starts_with("attention_mask: not given, so the "));
  // The pads of "main" are those of its mask.
  CHECK(worst_difference(model.forward(batch), io().tensor("main/f64/logits")) < 1e-12);
}

TEST_CASE("a row without a usable token is refused by its number") {
  const Tensor mask = io().tensor("one_row_all_zero/attention_mask");
  int64_t row = 0;
  while (sum(to(slice(mask, 0, row, row + 1), DType::f64)).item() != 0)
    ++row;
  CHECK(error_of([] { packed("one_row_all_zero"); }) ==
        fmt::format("attention_mask: row {} has no 1, must have at least one token to attend to",
                    row));
}

TEST_CASE("the first-token path equals the rows of the whole forward") {
  for (const DType dtype : {DType::f32, DType::f64}) {
    const auto model = tiny_model(dtype);
    for (const std::string name : cases) {
      CAPTURE(name);
      const PackedBatch batch = packed(name);
      const Tensor first = slice(batch.offsets, 0, 0, batch.sequences());
      CHECK(worst_difference(model.distilbert.first_tokens(batch),
                             index_select(model.distilbert.forward(batch), 0, first)) <
            tolerance(dtype));
    }
  }
}

TEST_CASE("a text has the same logits alone, in a batch and beside longer ones") {
  const auto model = tiny_model();
  const std::vector<int32_t> a = {2, 50, 60, 3}, b = {2, 7, 3}, c = {2, 9, 8, 7, 6, 5, 4, 119, 3};
  const Tensor together = model.forward(pack_ids({a, b, c}));
  int64_t row = 0;
  for (const auto& ids : {a, b, c}) {
    // f32 sums may be ordered differently for other row counts.
    CHECK(worst_difference(model.forward(pack_ids({ids})), slice(together, 0, row, row + 1)) <
          2e-6);
    ++row;
  }
}

TEST_CASE("sequences longer than the table of positions are refused") {
  const auto model = tiny_model();
  CHECK(error_of([&] {
          model.forward(pack_ids({{2, 3}, std::vector<int32_t>(41, 5)}));
        }) ==
        "distilbert: a sequence has 41 tokens or more, the model has 40 positions; truncate it");
}

TEST_CASE("ids outside the vocabulary are refused") {
  const auto model = tiny_model();
  CHECK(error_of([&] {
          model.forward(pack_ids({{2, 120, 3}}));
        }) == "embedding: id 120 at position 1 is outside a table of 120 rows");
}

TEST_CASE("distilbert-base has Hugging Face's tensors and parameter counts") {
  DistilBertConfig config;
  // One model is enough; the table of words is the only difference: 1526 rows more when uncased.
  config.vocab_size = 28996;
  {
    const DistilBertForSequenceClassification model(config);
    CHECK(model.parameters().size() == 104);
    CHECK(model.parameter_count() == 65'783'042);
    CHECK(model.distilbert.parameter_count() == 65'190'912);
    CHECK(model.distilbert.layer[5].parameter_count() == 7'087'872);
    CHECK(model.parameter_count() + (30522 - 28996) * 768 == 66'955'010);
    CHECK(model.distilbert.parameter_count() + (30522 - 28996) * 768 == 66'362'880);
    CHECK(memory::current(memory::Category::weights) >= 4 * 65'783'042);
    CHECK(model.parameters().front().name == "distilbert.embeddings.word_embeddings.weight");
    CHECK(model.parameters().back().name == "classifier.bias");
  }
  memory::release_pool();
}

TEST_CASE("new weights are normal with the config's range, norms are identities") {
  DistilBertConfig config = DistilBertConfig::preset("tiny");
  config.vocab_size = 1000;
  config.initializer_range = 0.05;
  const DistilBertForSequenceClassification model(config, {.seed = 3});
  for (const auto& [name, tensor] : model.parameters()) {
    const auto& which = name;
    CAPTURE(which);
    double total = 0, square = 0;
    for (double value : tensor.to_vector<double>()) {
      total += value;
      square += value * value;
    }
    const double n = double(tensor.numel()), deviation = std::sqrt(square / n);
    if (name.ends_with("bias")) {
      CHECK(square == 0);
    } else if (name.find("orm.") != std::string::npos) {
      CHECK(total == n);
      CHECK(square == n);
    } else {
      // Five standard errors; the table of words has 128 zeros in 128000.
      CHECK(std::abs(deviation / 0.05 - 1) < 5 / std::sqrt(2 * n) + 1e-3);
      CHECK(std::abs(total / n) < 5 * 0.05 / std::sqrt(n));
    }
  }
  const Tensor words = model.distilbert.embeddings.word_embeddings.weight;
  CHECK(slice(words, 0, 0, 1).to_vector<float>() == std::vector<float>(128, 0));
}

TEST_CASE("sinusoidal positions are the fixed table and are not trained") {
  DistilBertConfig config = DistilBertConfig::preset("tiny");
  config.vocab_size = 10;
  config.sinusoidal_pos_embds = true;
  const DistilBertForSequenceClassification model(config);
  const Tensor table = model.distilbert.embeddings.position_embeddings.weight;
  CHECK_FALSE(table.requires_grad());
  CHECK(select(select(table, 0, 1), 0, 0).item() == doctest::Approx(std::sin(1.0)).epsilon(1e-6));
  CHECK(select(select(table, 0, 1), 0, 1).item() == doctest::Approx(std::cos(1.0)).epsilon(1e-6));
}
