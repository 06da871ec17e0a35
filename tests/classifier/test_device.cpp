#include <cmath>

#include "core/device.h"
#include "tests/classifier/program.h"
#include "tests/core/cuda/needs_device.h"

// --device of the verbs that compute, and `classifier parity`.
using namespace minim;
using namespace minim::test;
using nlohmann::json;

namespace {

const std::string model = MINIM_TEST_DATA "/distilbert_tiny";
const doctest::skip needs_no_device(cuda::device_count() > 0);
// A model that an emulator runs in a second.
const Arguments small = {
    "--preset",           "tiny",
    "--config-overrides", "dim=16,n_heads=2,hidden_dim=32,n_layers=1,vocab_size=50",
    "--lengths",          "3,9,1"};

Arguments training(const TemporaryFolder& folder, const Arguments& more) {
  write_whole_file(folder / "train.csv", questions(16));
  return train_arguments(folder / "train.csv", folder / "run") + Arguments{"--report-to", "none"} +
         more;
}

}  // namespace

TEST_CASE("without a device the cpu is used, and a note says why" * needs_no_device) {
  const TemporaryFolder folder;
  const Outcome asked = succeed(training(folder, {"--device", "cuda:1"}));
  CHECK(contains(asked.errors, "note: device: the cpu is used instead of cuda:1, since " +
                                   cuda::why_unavailable() + "\n"));
  const Outcome cpu = succeed(training(folder, {"--device", "cpu", "--overwrite-output-dir"}));
  CHECK_FALSE(contains(cpu.errors, "device:"));
}

TEST_CASE("a device that is none is a usage error") {
  const TemporaryFolder folder;
  const Outcome outcome = classifier(training(folder, {"--device", "gpu"}));
  CHECK(outcome.status == 2);
  CHECK(contains(outcome.errors, "--device: gpu is none of auto, cpu, cuda, cuda:1 .."));
}

TEST_CASE("without a device parity has nothing to compare, and says why" * needs_no_device) {
  CHECK(failure_of(Arguments{"parity"} + small) ==
        "parity: there is no device to compare the cpu with: device: the cpu is used instead of "
        "cuda:0, since " +
            cuda::why_unavailable());
}

TEST_CASE("parity wants a device, and one model") {
  CHECK(failure_of(Arguments{"parity", "--device", "cpu"} + small) ==
        "parity: there is no device to compare the cpu with: cpu was asked for");
  CHECK(failure_of({"parity"}, 2) ==
        "parity: give --model-name-or-path FOLDER or --preset NAME, and not both");
}

TEST_CASE("parity prints a table, or JSON, with its verdict on a device" * needs_device) {
  const Outcome table = succeed(Arguments{"parity"} + small);
  CHECK(
      contains(table.output, "One step with adamw on cpu and cuda:0: 3 sequences, 13 tokens, f32"));
  CHECK(contains(table.output, "gradient distilbert.embeddings.word_embeddings.weight"));
  CHECK(contains(table.output, " tensors agree\n"));
  const json object = json::parse(
      succeed(Arguments{"parity", "--json", "--optim", "sgd", "--learning-rate", "0.1"} + small)
          .output);
  CHECK(object["agrees"] == true);
  CHECK(object["device"] == "cuda:0");
  CHECK(object["optimizer"] == "sgd");
  CHECK(object["tensors"][1]["kind"] == "loss");
  CHECK(object["tensors"][1]["difference"].get<double>() <=
        object["tensors"][1]["tolerance"].get<double>());
}

TEST_CASE("training, evaluating and predicting on a device" * needs_device) {
  const TemporaryFolder folder;
  const Outcome trained = succeed(training(folder, {}));  // auto
  CHECK(contains(trained.output, "; on cuda:0\n"));
  const json results = json::parse(read_whole_file(folder / "run/all_results.json"));
  CHECK(results.dump().find("\"device\":\"cuda:0\"") != std::string::npos);
  const Arguments use = {"--model-name-or-path", folder / "run"};
  const auto loss_on = [&](const std::string& device) {
    return json::parse(succeed(Arguments{"evaluate", "--json", "--device", device, "--test-file",
                                         folder / "train.csv"} +
                               use)
                           .output)["eval_loss"]
        .get<double>();
  };
  CHECK(std::abs(loss_on("cuda") - loss_on("cpu")) < 1e-5);
  const auto predicted = [&](const std::string& device) {
    return succeed(Arguments{"predict", "--device", device, "--text", "my card is lost"} + use)
        .output;
  };
  CHECK(predicted("cuda:0") == predicted("cpu"));
}
