#include <filesystem>

#include "tests/classifier/program.h"

// state: an optimizer's memory, opened by the names of the parameters.
using namespace minim;
using namespace minim::test;
using nlohmann::json;

namespace {

constexpr const char* weight = "distilbert.transformer.layer.0.attention.q_lin.weight";

// A folder with a short run under an optimizer.
std::string run_with(const TemporaryFolder& folder, const Arguments& more) {
  write_whole_file(folder / "train.csv", questions(16));
  succeed(train_arguments(folder / "train.csv", folder / "run") + more);
  return folder / "run";
}

}  // namespace

TEST_CASE("state lists all parameters of a run, and sums up their state") {
  const TemporaryFolder folder;
  const std::string run = run_with(folder, {});
  const std::string text = succeed({"state", run}).output;
  CHECK(contains(text, run + "/optimizer.safetensors: adamw, 40 parameters, step 2\n"));
  CHECK(contains(text, weight));
  CHECK(contains(text, "in all "));

  const json object = json::parse(succeed({"state", run, "--json"}).output);
  CHECK(object["parameters"].size() == 40);
  // What the run's own record says of it.
  const json results = json::parse(read_whole_file(run + "/all_results.json"));
  CHECK(object["bytes"] == results["memory"]["predicted_bytes"]["optimizer state"]);
  CHECK(object["elements"] == results["memory"]["optimizer_state_elements"]);
}

TEST_CASE("state shows one parameter under every optimizer") {
  struct Case {
    Arguments options;
    std::vector<std::string> parts;
  };
  const Case cases[] = {
      {{"--optim", "adamw"}, {"exp_avg  f32 [16, 16]", "exp_avg_sq  f32 [16, 16]"}},
      {{"--optim", "adafactor"},
       {"exp_avg_sq_row  f32 [16]", "exp_avg_sq_col  f32 [16]", "row * column / mean(row)"}},
      {{"--optim", "adafactor_torch"}, {"row_var  f32 [16, 1]", "row * column / mean(row)"}},
      {{"--optim", "adam8bit", "--optim-args", "min_8bit_size=64"},
       {"exp_avg  u8 [16, 16]", "of 256 in use", "scales of 1 blocks of 256", "error: at most"}},
      {{"--optim", "sgd", "--optim-args", "momentum=0.9"}, {"momentum_buffer  f32 [16, 16]"}},
  };
  for (const Case& c : cases) {
    CAPTURE(c.options[1]);
    const TemporaryFolder folder;
    const std::string run = run_with(folder, c.options);
    const std::string text = succeed({"state", run, weight}).output;
    CHECK(contains(text, std::string(weight) + " [16, 16]\n"));
    for (const std::string& part : c.parts)
      CHECK(contains(text, part));
    CHECK(json::parse(succeed({"state", run, weight, "--json"}).output)["parameters"].size() == 1);
  }
}

TEST_CASE("state takes patterns, checkpoints and files") {
  const TemporaryFolder folder;
  const std::string run = run_with(
      folder, {"--save-strategy", "steps", "--save-steps", "1", "--save-total-limit", "2"});
  const json all = json::parse(succeed({"state", run, "*.q_lin.weight", "--json"}).output);
  CHECK(all["parameters"].size() == 2);  // of two layers
  CHECK(contains(succeed({"state", run + "/checkpoint-1"}).output, "step 1\n"));
  CHECK(
      contains(succeed({"state", run + "/checkpoint-2/optimizer.safetensors"}).output, "step 2\n"));
}

TEST_CASE("state names parameters that are like one that is not there") {
  const TemporaryFolder folder;
  const std::string run = run_with(folder, {});
  CHECK(failure_of({"state", run, "layer.0.attention.q_lin.wieght"}) ==
        run +
            "/optimizer.safetensors: none of the 40 parameters is named "
            "layer.0.attention.q_lin.wieght; similar: "
            "distilbert.transformer.layer.0.attention.q_lin.weight, "
            "distilbert.transformer.layer.0.attention.k_lin.weight, "
            "distilbert.transformer.layer.0.attention.v_lin.weight");
  CHECK(failure_of({"state", run, "pre_clasifier.weight"}) ==
        run +
            "/optimizer.safetensors: none of the 40 parameters is named pre_clasifier.weight; "
            "similar: pre_classifier.weight, classifier.weight, pre_classifier.bias");
}

TEST_CASE("state says what is wrong with files that are none of an optimizer") {
  const TemporaryFolder folder;
  const std::string run = run_with(folder, {});
  CHECK(failure_of({"state", folder / "nowhere"}).starts_with(folder / "nowhere: "));
  CHECK(failure_of({"state", run + "/model.safetensors"}) ==
        run +
            "/model.safetensors: the metadata has no \"optimizer\"; the file was not written by "
            "an optimizer");
  CHECK(failure_of({"state", run + "/vocab.txt"}).starts_with(run + "/vocab.txt: "));
  const std::string bytes = read_whole_file(run + "/optimizer.safetensors");
  write_whole_file(folder / "cut", bytes.substr(0, bytes.size() / 2));
  CHECK(failure_of({"state", folder / "cut"}).starts_with(folder / "cut: "));
  std::filesystem::remove(run + "/optimizer.safetensors");
  CHECK(failure_of({"state", run}) ==
        run +
            ": holds no optimizer.safetensors, and neither does a checkpoint in it; train writes "
            "it unless told --save-only-model");
}
