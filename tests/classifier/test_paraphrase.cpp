#include <cstdlib>

#include "tests/classifier/program.h"

// The example with two sentences.
using namespace minim;
using namespace minim::test;
using nlohmann::json;

namespace {

// On one thread, so that it takes the same seconds where other tests run beside it.
void train(const Arguments& arguments) {
  const Outcome outcome =
      classifier(Arguments{"train"} + arguments, "", [] { ::setenv("OMP_NUM_THREADS", "1", 1); });
  CAPTURE(outcome.errors);
  REQUIRE(outcome.status == 0);
}

}  // namespace

TEST_CASE("a tiny model tells paraphrases that it has not seen, after it learnt their intents") {
  const TemporaryFolder folder;
  const std::string data = MINIM_EXAMPLES "/banking77/";
  const std::string make =
      fmt::format("{} {}train.csv {}test.csv {} --every 30 > {}", MINIM_PARAPHRASE_PAIRS, data,
                  data, folder.path(), folder / "out");
  REQUIRE(std::system(make.c_str()) == 0);
  const std::string made = read_whole_file(folder / "out");
  // No question of the test is one of the training.
  const std::string known = read_whole_file(folder / "train.jsonl");
  for (const std::string& line : lines_of(read_whole_file(folder / "test.jsonl")))
    CHECK_FALSE(contains(known, json::parse(line)["sentence1"].dump()));
  const Arguments both = {"--text-column-names",
                          "sentence1,sentence2",
                          "--per-device-train-batch-size",
                          "16",
                          "--warmup-ratio",
                          "0.1",
                          "--report-to",
                          "none"};
  train(Arguments{"--preset", "tiny", "--problem-type", "multi_label_classification",
                  "--train-file", folder / "train_intents.jsonl", "--learning-rate", "1e-3",
                  "--num-train-epochs", "2", "--output-dir", folder / "intents"} +
        both);
  train(Arguments{"--model-name-or-path", folder / "intents", "--ignore-mismatched-sizes",
                  "--train-file", folder / "train.jsonl", "--validation-file",
                  folder / "test.jsonl", "--learning-rate", "5e-4", "--num-train-epochs", "2",
                  "--output-dir", folder / "model"} +
        both);
  const json results = json::parse(read_whole_file(folder / "model/eval_results.json"));
  const size_t at = made.find("accuracy ");
  REQUIRE(at != std::string::npos);
  const double baseline = std::stod(made.substr(at + 9));
  CHECK(baseline < 0.6);
  CHECK(results["eval_accuracy"] >= 0.85);
  CHECK(results["eval_f1"] >= 0.85);
}
