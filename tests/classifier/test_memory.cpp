#include <filesystem>
#include <sys/resource.h>

#include "tests/classifier/program.h"

// `classifier memory`: what training will take, before any run.
using namespace minim;
using namespace minim::test;
using nlohmann::json;

namespace {

const std::string config = MINIM_TEST_DATA "/distilbert_tiny/config.json";

json plan_of(const Arguments& more) {
  return json::parse(succeed(Arguments{"memory", "--json"} + more).output);
}

}  // namespace

TEST_CASE("memory reads a folder's config.json, that file, or makes a preset") {
  const TemporaryFolder folder;
  std::filesystem::copy_file(config, folder / "config.json");
  const json by_file = plan_of({"--model-name-or-path", config});
  CHECK(plan_of({"--model-name-or-path", folder.path()}) == by_file);
  CHECK(by_file["config"]["model_type"] == "distilbert");

  const json base = plan_of({"--preset", "base", "--vocab_size", "28996",
                             "--per_device_train_batch_size", "16", "--max_seq_length", "128"});
  CHECK(base["parameters"] == 65783042);
  CHECK(base["batch"]["sequences"] == 16);
  CHECK(base["optimizers"][0]["name"] == "adamw");
  CHECK(base["optimizers"][0]["state_bytes"] == 8 * int64_t(65783042));
  const json more = plan_of({"--preset", "base", "--num-labels", "77"});
  CHECK(more["parameters"].get<int64_t>() ==
        plan_of({"--preset", "base"})["parameters"].get<int64_t>() + 75 * 769);
  CHECK(plan_of({"--preset", "tiny", "--config-overrides", "n_layers=3"})["tensors"] ==
        4 + 3 * 16 + 4);
}

TEST_CASE("memory takes a batch of equal or of given lengths, and what is frozen") {
  const Arguments tiny = {"--preset", "tiny"};
  CHECK(plan_of(tiny)["batch"] == json({{"sequences", 8}, {"tokens", 1024}, {"longest", 128}}));
  CHECK(plan_of(tiny + Arguments{"--lengths", "5,9,2"})["batch"] ==
        json({{"sequences", 3}, {"tokens", 16}, {"longest", 9}}));
  // A model of fewer positions than texts usually have.
  CHECK(plan_of(tiny + Arguments{"--config-overrides",
                                 "max_position_embeddings=50"})["batch"]["longest"] == 50);
  const json frozen = plan_of(tiny + Arguments{"--freeze", "distilbert.embeddings.*"});
  CHECK(frozen["gradients_bytes"].get<int64_t>() ==
        4 * frozen["trained_parameters"].get<int64_t>());
  CHECK(frozen["trained_parameters"].get<int64_t>() < frozen["parameters"].get<int64_t>());
}

TEST_CASE("memory plans every optimizer, or one with its options") {
  const Outcome outcome = succeed({"memory", "--preset", "tiny"});
  for (const char* name : {"adamw ", "adafactor ", "adam8bit ", "adam8bit keep_f32=embeddings ",
                           "adamw8bit ", "sgd ", "adafactor_torch ", "weights ", "activations "})
    CHECK(contains(outcome.output, std::string("\n") + name));
  CHECK(outcome.errors.empty());
  const json one =
      plan_of({"--preset", "tiny", "--optim", "adamw", "--optim-args", "amsgrad=True"});
  REQUIRE(one["optimizers"].size() == 1);
  CHECK(one["optimizers"][0]["state_bytes"].get<int64_t>() ==
        12 * one["parameters"].get<int64_t>());
  const std::string by_tensor = succeed({"memory", "--preset", "tiny", "--by-tensor"}).output;
  CHECK(contains(by_tensor, "\ndistilbert.transformer.layer.1.ffn.lin1.weight "));
  CHECK(contains(by_tensor, " [512, 128]      256.00 "));
}

TEST_CASE("memory says what options of training save, and takes them") {
  const Arguments tiny = {"--preset", "tiny", "--config-overrides", "n_layers=4"};
  const json plain = plan_of(tiny);
  CHECK(plain["options"][0]["option"] == "");
  CHECK(plain["options"][1]["option"] == "--gradient-checkpointing");
  const json less = plan_of(tiny + Arguments{"--gradient-checkpointing"});
  CHECK(less["gradient_checkpointing"] == true);
  CHECK(less["activations_bytes"] == plain["options"][1]["activations_bytes"]);
  CHECK(less["activations_bytes"].get<int64_t>() < plain["activations_bytes"].get<int64_t>());
  CHECK(less["optimizers"][0]["peak_bytes"] == plain["options"][1]["peak_bytes"]);
  const json mixed = plan_of(tiny + Arguments{"--precision", "bf16"});
  CHECK(mixed["precision"] == "bf16");
  CHECK(mixed["weight_casts_bytes"].get<int64_t>() > 0);
  CHECK(plan_of(tiny + Arguments{"--fp16"})["precision"] == "fp16");
  CHECK(plan_of(tiny + Arguments{"--precision", "auto"})["precision"] == "fp32");
  const json evaluated =
      plan_of(tiny + Arguments{"--max-eval-samples", "100", "--per-device-eval-batch-size", "50"});
  CHECK(evaluated["evaluation"]["rows"] == 100);
  CHECK(evaluated["evaluation"]["sequences"] == 50);
  const json loss_only =
      plan_of(tiny + Arguments{"--max-eval-samples", "100", "--per-device-eval-batch-size", "50",
                               "--prediction-loss-only"});
  CHECK(evaluated["evaluation"]["data_bytes"].get<int64_t>() -
            loss_only["evaluation"]["data_bytes"].get<int64_t>() ==
        100 * 2 * 4);  // logits
  const std::string table =
      succeed(Arguments{"memory", "--bf16", "--gradient-checkpointing", "--max-eval-samples", "1"} +
              tiny)
          .output;
  for (const char* part :
       {"; gradient checkpointing; mixed precision bf16\n", "\nweights in bf16 ", "\nevaluation ",
        "f32 and bf16", " of 1 row, and a batch", "\nas above ", "--freeze 'distilbert."})
    CHECK(contains(table, part));
}

#if !defined(__SANITIZE_ADDRESS__)
TEST_CASE("where there is no memory left, training names the option that needs less") {
  const TemporaryFolder folder;
  std::string rows = "text,label\n";
  for (int i = 0; i < 1000; ++i) {
    for (int word = 0; word < 130; ++word)
      rows += "a ";
    rows += i % 2 == 0 ? ",x\n" : ",y\n";
  }
  write_whole_file(folder / "train.csv", rows);
  // A tensor of 128,000 tokens takes 62 MiB.
  const auto limit = [] {
    const rlimit most{.rlim_cur = 512 << 20, .rlim_max = 512 << 20};
    ::setrlimit(RLIMIT_AS, &most);
  };
  const Outcome outcome =
      classifier({"train", "--preset", "tiny", "--train-file", folder / "train.csv", "--output-dir",
                  folder / "run", "--max-steps", "1", "--per-device-train-batch-size", "1000",
                  "--config-overrides", "n_layers=4"},
                 "", limit);
  CHECK(outcome.status == 1);
  CHECK(contains(outcome.errors, "error: memory: the system refused "));
  CHECK(outcome.errors.ends_with(
      "; a smaller batch, shorter sequences or gradient_checkpointing need less\n"));
}
#endif

TEST_CASE("what the plan says, training keeps and takes") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(16));
  succeed(train_arguments(folder / "train.csv", folder / "run") + Arguments{"--optim", "adam8bit"});
  const json ledger = json::parse(read_whole_file(folder / "run/all_results.json"))["memory"];
  const json plan = plan_of({"--model-name-or-path", folder / "run", "--optim", "adam8bit"});
  CHECK(plan["parameters"] == ledger["parameters"]);
  CHECK(plan["weights_bytes"] == ledger["measured_bytes"]["weights"]["peak"]);
  CHECK(plan["gradients_bytes"] == ledger["measured_bytes"]["gradients"]["peak"]);
  CHECK(plan["optimizers"][0]["state_bytes"] ==
        ledger["measured_bytes"]["optimizer state"]["current"]);
  // Texts are shorter than the 128 tokens of the plan.
  CHECK(plan["activations_bytes"].get<int64_t>() >=
        ledger["measured_bytes"]["activations"]["peak"].get<int64_t>());
}

#if !defined(__SANITIZE_ADDRESS__)  // which reserves terabytes of addresses
TEST_CASE("the plan of a model takes no memory of the model's size") {
  // 2.9 GiB of weights under 512 MiB of addresses.
  const auto limit = [] {
    const rlimit most{.rlim_cur = 512 << 20, .rlim_max = 512 << 20};
    ::setrlimit(RLIMIT_AS, &most);
  };
  const Outcome outcome = classifier(
      {"memory", "--preset", "base", "--json", "--config-overrides", "dim=3072,hidden_dim=12288"},
      "", limit);
  CAPTURE(outcome.errors);
  CHECK(outcome.status == 0);
  CHECK(json::parse(outcome.output)["weights_bytes"].get<int64_t>() > int64_t(5) << 29);
}
#endif

TEST_CASE("memory refuses what makes no sense with one sentence") {
  const auto error = [](const Arguments& more, int status = 1) {
    return failure_of(Arguments{"memory"} + more, status);
  };
  const TemporaryFolder folder;
  CHECK(error({}, 2) ==
        "memory: give --model-name-or-path FOLDER (or its config.json) or --preset NAME, and not "
        "both");
  CHECK(error({"--preset", "tiny", "--model-name-or-path", config}, 2) == error({}, 2));
  CHECK(error({"--model-name-or-path", folder / "none"}) ==
        (folder / "none: no such folder or config.json; a model is a folder on this machine, "
                  "nothing is downloaded"));
  CHECK(error({"--model-name-or-path", folder.path()}) ==
        (folder / "config.json: cannot be opened: No such file or directory"));
  write_whole_file(folder / "bert.json", R"({"model_type": "bert"})");
  CHECK(error({"--model-name-or-path", folder / "bert.json"}) ==
        (folder / "bert.json: model_type \"bert\" is not supported; minim reads \"distilbert\""));
  write_whole_file(folder / "cut.json", "{\"model_type\": ");
  CHECK(contains(error({"--model-name-or-path", folder / "cut.json"}), "cut.json: is not JSON"));

  const Arguments tiny = {"--preset", "tiny"};
  CHECK(error(tiny + Arguments{"--max-seq-length", "129"}) ==
        "--max-seq-length 129: is more than the model's 128 positions");
  CHECK(error(tiny + Arguments{"--lengths", "3,129"}) ==
        "batch: a sequence of 129 tokens is longer than the model's 128 positions");
  CHECK(error(tiny + Arguments{"--lengths", "3,0"}) ==
        "batch: a sequence needs at least 1 token, got 0");
  CHECK(error(tiny + Arguments{"--per-device-train-batch-size", "0"}, 2) ==
        "per_device_train_batch_size: must be at least 1, is 0");
  CHECK(error(tiny + Arguments{"--gradient-accumulation-steps", "0"}, 2) ==
        "gradient_accumulation_steps: must be at least 1, is 0");
  CHECK(error(tiny + Arguments{"--per-device-train-batch-size", "100000000"}) ==
        "batch: 100000000 sequences of 128 tokens are more than the 2^31 - 1 tokens that a batch "
        "can hold");
  CHECK(error(tiny + Arguments{"--config-overrides", "vocab_size=2000000000,dim=2000000000"}) ==
        "config: a model of 4e+19 parameters fits into no memory; look at vocab_size 2000000000, "
        "dim 2000000000 and hidden_dim 512");
  CHECK(error({"--preset", "base", "--per-device-train-batch-size", "4000000", "--max-seq-length",
               "512", "--config-overrides", "n_layers=9000"}) ==
        "batch: 2048000000 tokens need up to 2.27e+18 bytes of activations, which fit into no "
        "memory; a smaller batch or shorter sequences need less");
  CHECK(error(tiny + Arguments{"--freeze", "*"}) ==
        "freeze: every parameter is frozen; nothing is left to train");
  CHECK(error(tiny + Arguments{"--freeze", "nope"}) ==
        "freeze: no parameter's name matches \"nope\"");
  CHECK(contains(error(tiny + Arguments{"--optim", "adamx"}),
                 "optim: \"adamx\" is unknown; there are adamw"));
  CHECK(error(tiny + Arguments{"--optim-args", "amsgrad=True"}, 2) ==
        "--optim-args: goes with --optim, which names the optimizer that they are for");
  CHECK(contains(classifier({"memory", "--preset", "tiny", "--vocab-size", "0"}).errors,
                 "--vocab-size"));
}
