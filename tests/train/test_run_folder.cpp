#include <cmath>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/file.h"
#include "tests/core/read_json.h"
#include "tests/train/small_model.h"
#include "text/tokenizer_files.h"
#include "train/run_folder.h"

// What a run leaves on the disk.
using namespace minim;
using namespace minim::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::vector<json> read_lines(const std::string& path) {
  std::vector<json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    lines.push_back(json::parse(line));
  return lines;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

// A short run that is saved to a folder.
void train_and_save(const std::string& folder, bool evaluates) {
  const TrainingArguments arguments{
      .per_device_train_batch_size = 4,
      .num_train_epochs = 2,
      .eval_strategy = evaluates ? IntervalStrategy::epoch : IntervalStrategy::no,
      .logging_steps = 3};
  Run run(arguments, 20, 6);
  run.trainer.add_callback(std::make_shared<train::JsonLogCallback>(folder));
  const Metrics results = run.trainer.train();
  const train::NamedArguments further = {{"train_file", "train.csv"},
                                         {"freeze", nullptr},
                                         {"text_column_names", std::vector<std::string>{"a", "b"}},
                                         {"max_seq_length", int64_t(128)}};
  train::save_run(folder, {run.model, small_tokenizer(), run.optimizer, arguments, further},
                  run.trainer.state(), results,
                  evaluates ? run.recorder->evaluations.back() : Metrics{});
}

}  // namespace

TEST_CASE("a run folder holds the model, the tokenizer and the records") {
  const TemporaryFolder outer;
  const std::string folder = outer / "runs/first";
  train_and_save(folder, true);
  CHECK(names_in(folder) ==
        std::vector<std::string>{"all_results.json", "config.json", "eval_results.json",
                                 "log.jsonl", "model.safetensors", "optimizer.safetensors",
                                 "rng_state.json", "scheduler.json", "special_tokens_map.json",
                                 "tokenizer.json", "tokenizer_config.json", "train_results.json",
                                 "trainer_state.json", "training_args.json", "vocab.txt"});
  const auto model = DistilBertForSequenceClassification::from_pretrained(folder);
  CHECK(model.parameter_count() == small_model().parameter_count());
  CHECK(text::load_tokenizer(folder).tokenizer.vocab_size() == 30);
}

TEST_CASE("records are JSON with Hugging Face's names") {
  const TemporaryFolder folder;
  train_and_save(folder.path(), true);
  const json train = read_json(folder / "train_results.json");
  const json evaluation = read_json(folder / "eval_results.json");
  const json all = read_json(folder / "all_results.json");
  for (const json& part : {train, evaluation})
    for (const auto& [name, value] : part.items())
      CHECK(all.contains(name));
  CHECK(train["epoch"] == 2);
  CHECK(evaluation.contains("eval_accuracy"));

  const json state = read_json(folder / "trainer_state.json");
  for (const char* name : {"best_global_step",
                           "best_metric",
                           "best_model_checkpoint",
                           "epoch",
                           "eval_steps",
                           "global_step",
                           "is_hyper_param_search",
                           "is_local_process_zero",
                           "is_world_process_zero",
                           "log_history",
                           "logging_steps",
                           "max_steps",
                           "num_input_tokens_seen",
                           "num_train_epochs",
                           "save_steps",
                           "stateful_callbacks",
                           "total_flos",
                           "train_batch_size",
                           "trial_name",
                           "trial_params"}) {
    CAPTURE(name);
    CHECK(state.contains(name));
  }
  CHECK(state["global_step"] == 10);
  CHECK(state["num_train_epochs"] == 2);
  CHECK(state["total_flos"] == train["total_flos"]);
  // Logs after 3, 6, 9 and 10 steps, evaluations after 5 and 10, the end.
  CHECK(state["log_history"].size() == 7);
  for (const json& entry : state["log_history"])
    CHECK(entry.contains("step"));

  const json arguments = read_json(folder / "training_args.json");
  CHECK(arguments["optim"] == "adamw");
  CHECK(arguments["eval_strategy"] == "epoch");
  CHECK(arguments["learning_rate"] == 5e-5);
  CHECK(arguments["data_seed"].is_null());
  CHECK(arguments["adam_beta2"] == 0.999);
  CHECK(arguments["optim_args"].is_null());
  CHECK(arguments["save_strategy"] == "no");
  CHECK(arguments["train_file"] == "train.csv");
  CHECK(arguments["freeze"].is_null());
  CHECK(arguments["text_column_names"] == json({"a", "b"}));
  CHECK(arguments["max_seq_length"] == 128);

  const auto log = read_lines(folder / "log.jsonl");
  REQUIRE(log.size() == 6);
  CHECK(log[0]["step"] == 3);
  CHECK(log[0].contains("learning_rate"));
  CHECK(log[1]["step"] == 5);
  CHECK(log[1].contains("eval_loss"));
}

TEST_CASE("the ledger's prediction is what was measured") {
  const TemporaryFolder folder;
  const int64_t other_state = memory::current(memory::Category::optimizer_state);
  const int64_t other_weights = memory::current(memory::Category::weights);
  memory::reset_peak();
  const int64_t other_activations = memory::current(memory::Category::activations);
  train_and_save(folder.path(), false);
  const json ledger = read_json(folder / "all_results.json")["memory"];
  const json& predicted = ledger["predicted_bytes"];
  const json& measured = ledger["measured_bytes"];
  CHECK(measured["optimizer state"]["current"].get<int64_t>() - other_state ==
        predicted["optimizer state"].get<int64_t>());
  CHECK(measured["weights"]["current"].get<int64_t>() - other_weights ==
        predicted["weights"].get<int64_t>());
  CHECK(measured["gradients"]["peak"].get<int64_t>() >= predicted["gradients"].get<int64_t>());
  // A rehearsal of the step on the largest batch knows the rest. The labels of the 20 and 6 rows,
  // 8 bytes each, are made here without a category and so count as activations too.
  CHECK(measured["activations"]["peak"].get<int64_t>() - other_activations - 8 * 26 ==
        predicted["activations"].get<int64_t>());
  CHECK(measured["workspace"]["peak"] == predicted["workspace"]);
  CHECK(ledger["predicted_peak_bytes"].get<int64_t>() <=
        ledger["measured_peak_bytes"].get<int64_t>());
  // AdamW keeps two numbers per weight.
  CHECK(predicted["optimizer state"].get<int64_t>() == 2 * predicted["weights"].get<int64_t>());
}

TEST_CASE("the ledger counts parameters and the optimizer's numbers, and times its steps") {
  const TemporaryFolder folder;
  Run run({.max_steps = 3}, 8);
  run.model.freeze("distilbert.embeddings.*");
  run.trainer.train();
  train::save_run(folder.path(), {run.model, small_tokenizer(), run.optimizer, {.max_steps = 3}},
                  run.trainer.state(), {}, {});
  const json all = read_json(folder / "all_results.json");
  int64_t trained = 0;
  for (const NamedTensor& parameter : run.model.parameters())
    if (parameter.tensor.requires_grad()) trained += parameter.tensor.numel();
  CHECK(trained < run.model.parameter_count());
  CHECK(all["memory"]["parameters"] == run.model.parameter_count());
  CHECK(all["memory"]["trained_parameters"] == trained);
  CHECK(all["memory"]["optimizer_state_elements"] == 2 * trained);  // AdamW's two moments
  // A mean over the three steps; the whole update takes longer.
  const double milliseconds = all["train_optimizer_step_ms"];
  CHECK(milliseconds * 3 / 1000 ==
        doctest::Approx(run.trainer.state().optimizer_seconds).epsilon(1e-9));
  CHECK(milliseconds > 0);
  CHECK(run.trainer.state().optimizer_seconds < run.trainer.state().seconds);
}

TEST_CASE("numbers that are not finite are null") {
  const TemporaryFolder folder;
  {
    train::JsonLogCallback log(folder.path());
    TrainerState state;
    state.global_step = 37;
    log.on_log(state, {{"loss", NAN}, {"grad_norm", INFINITY}, {"epoch", 0.5}});
    // Each line is there at once.
    CHECK(read_whole_file(folder / "log.jsonl") ==
          "{\"epoch\":0.5,\"grad_norm\":null,\"loss\":null,\"step\":37}\n");
  }
  Run run({.max_steps = 1}, 4);
  run.trainer.train();
  train::save_run(folder.path(), {run.model, small_tokenizer(), run.optimizer, {.max_steps = 1}},
                  run.trainer.state(), {{"train_loss", NAN}}, {{"eval_loss", -INFINITY}});
  CHECK(read_json(folder / "all_results.json")["train_loss"].is_null());
  CHECK(read_json(folder / "eval_results.json")["eval_loss"].is_null());
}

TEST_CASE("a second run into a folder replaces all of the first") {
  const TemporaryFolder folder;
  train_and_save(folder.path(), true);
  train_and_save(folder.path(), false);
  CHECK(!fs::exists(folder / "eval_results.json"));
  CHECK(read_lines(folder / "log.jsonl").size() == 4);
}

TEST_CASE("a run that cannot be saved leaves the model that the folder held") {
  const TemporaryFolder folder;
  train_and_save(folder.path(), true);
  const auto files = folder.files();
  const std::string config = read_whole_file(folder / "config.json");
  // The place where new files are made is taken.
  const std::string staging = folder / (".minim-" + std::to_string(::getpid()) + ".tmp");
  write_whole_file(staging, "in the way");
  CHECK(error_of([&] { train_and_save(folder.path(), false); }).starts_with(staging + ": "));
  fs::remove(staging);
  CHECK(folder.files() == files);
  CHECK(read_whole_file(folder / "config.json") == config);
}

TEST_CASE("the check of an output folder leaves nothing behind") {
  const TemporaryFolder folder;
  train::check_writable_folder(folder.path());
  train::check_writable_folder(folder / "a/b/c");
  train::check_writable_folder(folder / "a/b/");
  CHECK(folder.files().empty());
  fs::create_directory(folder / "a");
  train::check_writable_folder(folder / "a/b/c");
  CHECK(folder.files() == std::vector<std::string>{"a"});
  CHECK(fs::is_empty(folder / "a"));
}

TEST_CASE("a folder that cannot be written to is refused, with what to do") {
  const TemporaryFolder folder;
  write_whole_file(folder / "file", "");
  CHECK(error_of([&] { train::check_writable_folder(folder / "file/run"); }) ==
        (folder / "file/run: the folder cannot be made (Not a directory); choose another one"));
  // No one makes files in /proc/self, root included.
  const std::string error = error_of([] { train::check_writable_folder("/proc/self"); });
  CHECK(error.starts_with("/proc/self: the folder cannot be written to ("));
  CHECK(error.ends_with("); choose another one"));
  if (::geteuid() != 0) {
    ::chmod(folder.path().c_str(), 0500);
    CHECK(error_of([&] { train::check_writable_folder(folder.path()); }) ==
          folder.path() +
              ": the folder cannot be written to (Permission denied); choose another one");
    ::chmod(folder.path().c_str(), 0700);
  }
}
