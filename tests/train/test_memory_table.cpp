// The plan as people and programs read it.
#include <algorithm>
#include <sstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/core/contains.h"
#include "train/memory_table.h"

using namespace minim;
using namespace minim::test;
using models::BatchShape;
using models::DistilBertConfig;
using nlohmann::json;
using train::MemoryPlan;

namespace {

MemoryPlan plan_of_base(const std::vector<train::OptimizerChoice>& optimizers) {
  DistilBertConfig config;
  config.vocab_size = 28996;
  return train::plan_memory(config, BatchShape::uniform(16, 128), optimizers, {.threads = 2});
}

// The line that starts with these words, runs of blanks as one; empty if there is none.
std::string line_of(const std::string& text, const std::string& start) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string joined;
    for (std::string word; words >> word;)
      joined += (joined.empty() ? "" : " ") + word;
    if (joined.starts_with(start)) return joined;
  }
  return "";
}

}  // namespace

TEST_CASE("a bar has as many eighths of blocks as its share, and never none for something") {
  CHECK(train::bar(0, 100, 4) == "");
  CHECK(train::bar(100, 100, 4) == "████");
  CHECK(train::bar(50, 100, 4) == "██");
  CHECK(train::bar(25, 200, 4) == "▌");   // 4 blocks / 8
  CHECK(train::bar(75, 200, 4) == "█▌");  // 12 eighths
  CHECK(train::bar(97, 100, 1) == "█");   // 7.76 eighths are 8
  CHECK(train::bar(1, 1'000'000, 4) == "▏");
  CHECK(train::bar(7, 5, 2) == "██");  // no more than there is room for
  CHECK(train::bar(5, 0, 2) == "");
}

TEST_CASE("the table of DistilBERT says what each part takes") {
  const std::string table =
      train::memory_table(plan_of_base({{"adamw", ""}, {"adafactor", ""}, {"adam8bit", ""}}));
  CAPTURE(table);
  CHECK(line_of(table, "model") ==
        "model 6 layers, 12 heads, width 768, feed-forward 3072, vocabulary 28,996, 512 positions, "
        "2 labels");
  CHECK(line_of(table, "parameters") == "parameters 65,783,042 in 104 tensors");
  CHECK(line_of(table, "batch 16") ==
        "batch 16 sequences, 2,048 tokens, the longest of 128; 2 threads");
  // 65,783,042 x 4 bytes are 250.94 MiB; activations are 560,594,948 bytes
  // (test_distilbert_memory).
  CHECK(line_of(table, "weights") == "weights 250.94 ███████████▎ all parameters, f32");
  CHECK(line_of(table, "activations") ==
        "activations 534.63 ████████████████████████ when there are most, f32");
  // Five blocks of 2,048 tokens of 3,072 numbers.
  CHECK(line_of(table, "feed-forward: gelu") ==
        "feed-forward: gelu 120.00 █████▍ 5 tensors, read by the backward of gelu, linear");
  CHECK(line_of(table, "adamw").starts_with("adamw 131,566,188 526,264,336 501.88 "));
  CHECK(line_of(table, "adafactor").starts_with("adafactor 178,712 714,016 0.68 "));
  CHECK(contains(line_of(table, "adam8bit"), " 134,004,336 127.80 "));
}

TEST_CASE("columns line up, bars begin at one place, and no line ends in blanks") {
  const std::string table = train::memory_table(plan_of_base(train::all_optimizers()));
  std::istringstream lines(table);
  std::vector<size_t> starts;
  for (std::string line; std::getline(lines, line);) {
    CHECK((line.empty() || line.back() != ' '));
    const size_t at = std::min({line.find("█"), line.find("▏")});
    if (at != std::string::npos) starts.push_back(at);
    CHECK(line.size() < 200);
  }
  REQUIRE(starts.size() > train::all_optimizers().size());
  const size_t of_optimizers = starts.back();
  const auto here = size_t(std::ranges::count(starts, of_optimizers));
  CHECK(here >= train::all_optimizers().size());
}

TEST_CASE("numbers of one are not plural, and what is frozen or accumulated is said") {
  const auto model = models::model_without_weights(
      DistilBertConfig::preset("tiny").with_overrides("n_layers=1,n_heads=1,vocab_size=10"));
  model.freeze("distilbert.*");
  const MemoryPlan plan = train::plan_memory(model, BatchShape::uniform(1, 1), {{"sgd", ""}},
                                             {.gradient_accumulation_steps = 4, .threads = 1});
  const std::string table = train::memory_table(plan);
  CHECK(line_of(table, "model").starts_with("model 1 layer, 1 head, width 128, "));
  CHECK(line_of(table, "batch 1") ==
        "batch 1 sequence, 1 token, the longest of 1; 1 thread; 4 batches to an update");
  // pre_classifier and classifier: 128 x 129 + 2 x 129.
  CHECK(line_of(table, "parameters").ends_with(", 16,770 of them trained"));
}

TEST_CASE("tensor by tensor: what a weight takes, and its state") {
  const MemoryPlan plan = plan_of_base({{"adamw", ""}, {"adafactor", ""}, {"adam8bit", ""}});
  const std::string table = train::memory_by_tensor(plan);
  // Of a 768 x 768 matrix AdamW keeps two, Adafactor 768 + 768 numbers, 8-bit Adam two bytes a
  // weight and 2 x 2,304 scales.
  CHECK(line_of(table, "distilbert.transformer.layer.0.attention.q_lin.weight") ==
        "distilbert.transformer.layer.0.attention.q_lin.weight [768, 768] 2304.00 4608.00 6.00 "
        "1170.00");
  // A vector is too short for rows and columns, and for 8 bits.
  CHECK(line_of(table, "distilbert.transformer.layer.0.attention.q_lin.bias") ==
        "distilbert.transformer.layer.0.attention.q_lin.bias [768] 3.00 6.00 3.00 6.00");
  // 8-bit Adam's two tables of 256 numbers.
  CHECK(line_of(table, "(shared by all)") == "(shared by all) 2.00");
  CHECK(std::ranges::count(table, '\n') == 1 + 104 + 1);
}

TEST_CASE("as JSON it has the same in bytes") {
  const MemoryPlan plan = plan_of_base({{"adam8bit", "keep_f32=embeddings"}});
  const json object = json::parse(train::memory_json(plan));
  CHECK(object["parameters"] == 65783042);
  CHECK(object["tensors"] == 104);
  CHECK(object["config"]["vocab_size"] == 28996);
  CHECK(object["batch"]["tokens"] == 2048);
  CHECK(object["weights_bytes"] == 4 * 65783042);
  CHECK(object["activations_bytes"] == plan.step.activations);
  int64_t sum = 0;
  for (const json& part : object["activations"])
    sum += part["bytes"].get<int64_t>();
  CHECK(sum == plan.step.activations);
  REQUIRE(object["optimizers"].size() == 1);
  CHECK(object["optimizers"][0]["optim_args"] == "keep_f32=embeddings");
  CHECK(object["optimizers"][0]["state_bytes"] == plan.optimizers[0].state.bytes);
  CHECK(object["optimizers"][0]["peak_bytes"] == plan.optimizers[0].peak);
  CHECK_FALSE(object.contains("parameters_by_name"));

  const json detailed = json::parse(train::memory_json(plan, {}, true));
  CHECK(detailed["parameters_by_name"].size() == 104);
  CHECK(detailed["parameters_by_name"][0]["shape"] == json::array({28996, 768}));
  int64_t state = 0;
  for (const json& entry : detailed["optimizers"][0]["state"])
    state += entry["bytes"].get<int64_t>();
  CHECK(state == plan.optimizers[0].state.bytes);
}
