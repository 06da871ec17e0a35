#include <csignal>
#include <filesystem>

#include "tests/classifier/program.h"
#include "tests/core/read_json.h"

// train, and what it leaves.
using namespace minim;
using namespace minim::test;
using nlohmann::json;
namespace fs = std::filesystem;

TEST_CASE("a new model learns, is evaluated each epoch and saved") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(32));
  write_whole_file(folder / "test.csv", questions(8));
  const Outcome outcome =
      succeed(train_arguments(folder / "train.csv", folder / "run") +
              Arguments{"--validation-file", folder / "test.csv", "--max-steps", "-1",
                        "--num-train-epochs", "15", "--learning-rate", "3e-3"});
  CHECK(contains(outcome.output, "'eval_accuracy': 1.0"));
  CHECK(contains(outcome.output, "saved to " + (folder / "run")));
  // Evaluations are results; progress is not.
  CHECK(!contains(outcome.output, "tok/s"));
  CHECK(contains(outcome.errors, "tok/s"));
  CHECK(read_json(folder / "run/all_results.json")["eval_accuracy"] == 1);
  // What was saved is what was evaluated.
  const json again = json::parse(succeed({"evaluate", "--model-name-or-path", folder / "run",
                                          "--test-file", folder / "test.csv", "--json"})
                                     .output);
  // Logits depend on the size of the batch by rounding alone.
  const double loss = read_json(folder / "run/eval_results.json")["eval_loss"];
  CHECK(again["eval_loss"].get<double>() == doctest::Approx(loss).epsilon(1e-5));
  CHECK(read_json(folder / "run/config.json")["id2label"]["0"] == "exchange_rate");
  CHECK(read_json(folder / "run/trainer_state.json")["global_step"] == 60);
}

TEST_CASE("a run reports as it is asked to, on the page and to TensorBoard") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(16));
  const auto run = [&](const std::string& output, const Arguments& further) {
    return train_arguments(folder / "train.csv", folder / output) +
           Arguments{"--validation-file", folder / "train.csv", "--max-steps", "2"} + further;
  };
  const Outcome outcome = succeed(run("usual", {}));
  CHECK(contains(outcome.output, "memory (MiB)"));
  CHECK(fs::exists(folder / "usual/log.jsonl"));
  CHECK(!fs::exists(folder / "usual/runs"));
  const std::string page = read_whole_file(folder / "usual/report.html");
  for (const char* part : {"exchange_rate", "Confusion matrix", "max_steps", "exp_avg"})
    CHECK(contains(page, part));

  succeed(run("board", {"--report-to", "tensorboard", "--logging-dir", folder / "events"}));
  CHECK(!fs::exists(folder / "board/log.jsonl"));
  CHECK(!fs::exists(folder / "board/report.html"));
  CHECK(fs::directory_iterator(folder / "events")
            ->path()
            .filename()
            .string()
            .starts_with("events.out.tfevents."));

  succeed(run("all", {"--report-to", "all"}));
  CHECK(fs::exists(folder / "all/report.html"));
  CHECK(fs::is_directory(folder / "all/runs"));
  // A page of a run that was replaced does not stay beside the new one.
  succeed(run("all", {"--report-to", "none", "--overwrite-output-dir"}));
  CHECK(!fs::exists(folder / "all/report.html"));

  const Outcome refused = classifier(run("none", {"--report-to", "jsonl,wandb"}));
  CHECK(refused.status != 0);
  CHECK(contains(refused.errors, "must be all, none, or some of jsonl,html,tensorboard"));
}

TEST_CASE("a saved model can be trained further") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(16));
  const Outcome outcome =
      succeed({"train", "--model-name-or-path", trained_model(), "--train-file",
               folder / "train.csv", "--output-dir", folder / "run", "--max-steps", "1"});
  CHECK(contains(outcome.output, " tensors loaded"));
  CHECK(read_json(folder / "run/config.json")["dim"] == 16);
}

TEST_CASE("options come from a file, in either spelling, and the command line wins") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(16));
  write_whole_file(folder / "run.json",
                   "{\"learning_rate\": 0.25, \"weight-decay\": 0.5, \"max_steps\": 1, \"seed\": 7,"
                   " \"cased\": true, \"data_seed\": null}");
  succeed({"train", "--preset", "tiny", "--config", folder / "run.json", "--train_file",
           folder / "train.csv", "--output_dir", folder / "run", "--vocab_size=60",
           "--config_overrides", "dim=16,hidden_dim=32", "--seed", "8", "--max-steps=2"});
  const json arguments = read_json(folder / "run/training_args.json");
  CHECK(arguments["learning_rate"] == 0.25);
  CHECK(arguments["max_steps"] == 2);
  CHECK(arguments["seed"] == 8);
  CHECK(read_json(folder / "run/tokenizer_config.json")["do_lower_case"] == false);
}

TEST_CASE("the records of a run tell it from others, under the names that Hugging Face has") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(16));
  succeed(train_arguments(folder / "train.csv", folder / "run") +
          Arguments{"--optim", "adamw_bnb_8bit", "--optim-args", "block_size=64", "--adam-beta2",
                    "0.99", "--freeze", "distilbert.embeddings.*"});
  const json arguments = read_json(folder / "run/training_args.json");
  CHECK(arguments["optim"] == "adamw8bit");  // the name of its own, whatever was typed
  CHECK(arguments["optim_args"] == "block_size=64");
  CHECK(arguments["adam_beta2"] == 0.99);
  CHECK(arguments["weight_decay"] == 0);
  CHECK(arguments["preset"] == "tiny");
  CHECK(arguments["model_name_or_path"].is_null());
  CHECK(arguments["config_overrides"] == "dim=16,hidden_dim=32,n_heads=2");
  CHECK(arguments["max_seq_length"] == 128);
  CHECK(arguments["freeze"] == "distilbert.embeddings.*");
  CHECK(arguments["train_file"] == folder / "train.csv");
  CHECK(arguments["validation_file"].is_null());
  const json all = read_json(folder / "run/all_results.json");
  CHECK(all["train_optimizer_step_ms"] > 0);
  CHECK(all["memory"]["trained_parameters"] < all["memory"]["parameters"]);
}

TEST_CASE("further arguments of Hugging Face's commands are taken, recorded and acted upon") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(18));
  const Outcome outcome = succeed(train_arguments(folder / "train.csv", folder / "run") +
                                  Arguments{"--validation-file",
                                            folder / "train.csv",
                                            "--max-steps",
                                            "4",
                                            "--label_smoothing_factor",
                                            "0.1",
                                            "--neftune_noise_alpha",
                                            "5",
                                            "--dataloader_drop_last",
                                            "--non_finite_patience",
                                            "3",
                                            "--logging_steps",
                                            "0.5",
                                            "--eval_strategy",
                                            "steps",
                                            "--eval_steps",
                                            "0.25",
                                            "--prediction_loss_only",
                                            "--ignore_data_skip",
                                            "--report_to",
                                            "jsonl,html,tensorboard",
                                            "--logging_dir",
                                            folder / "events"});
  CHECK(contains(outcome.output, "'eval_unsmoothed_loss': "));
  CHECK(!contains(outcome.output, "eval_accuracy"));
  const json arguments = read_json(folder / "run/training_args.json");
  CHECK(arguments["label_smoothing_factor"] == 0.1);
  CHECK(arguments["neftune_noise_alpha"] == 5);
  CHECK(arguments["dataloader_drop_last"] == true);
  CHECK(arguments["non_finite_patience"] == 3);
  CHECK(arguments["logging_steps"] == 0.5);
  CHECK(arguments["eval_steps"] == 0.25);
  CHECK(arguments["prediction_loss_only"] == true);
  CHECK(arguments["ignore_data_skip"] == true);
  CHECK(arguments["logging_dir"] == folder / "events");
  const json state = read_json(folder / "run/trainer_state.json");
  CHECK(state["logging_steps"] == 2);
  CHECK(state["eval_steps"] == 1);
  CHECK(state["epoch"] == 2);  // two full batches of eight an epoch
  CHECK(contains(read_whole_file(folder / "run/report.html"), "loss (mean per row)"));
  CHECK(failure_of(train_arguments(folder / "train.csv", folder / "other") +
                       Arguments{"--problem-type", "regression", "--label-smoothing-factor", "0.1"},
                   2) ==
        "--label-smoothing-factor: is for rows of one class each, not for regression");
}

TEST_CASE("commands made for run_classification.py need few changes") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(16));
  const Arguments train = train_arguments(folder / "train.csv", folder / "run") +
                          Arguments{"--do_train", "True", "--overwrite_output_dir", "true"};
  succeed(train + Arguments{"--validation_file", folder / "train.csv", "--do_eval",
                            "--evaluation_strategy", "steps", "--eval_steps", "1", "--use_cpu",
                            "True", "--fp16", "False", "--lr_scheduler_type", "cosine_with_min_lr",
                            "--lr_scheduler_kwargs", "{\"min_lr\": 1e-6}"});
  const json arguments = read_json(folder / "run/training_args.json");
  CHECK(arguments["eval_strategy"] == "steps");
  CHECK(arguments["fp16"] == false);
  CHECK(arguments["lr_scheduler_kwargs"] == "{\"min_lr\": 1e-6}");
  CHECK(contains(read_whole_file(folder / "run/report.html"), "cpu"));
  CHECK(failure_of(train + Arguments{"--do_eval"}, 2) == "--do-eval: needs a --validation-file");
  CHECK(contains(failure_of(train + Arguments{"--do_train", "False"}, 2),
                 "--do-train false: this verb trains"));
  // Only flags take what follows them.
  CHECK(contains(classifier(train + Arguments{"--seed", "True"}).errors, "--seed = True"));
}

TEST_CASE("predictions that are all of one class are told on standard error") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(16));
  // Nothing is learnt without a rate, and the classes' weights start near 0.
  const Outcome outcome =
      succeed(train_arguments(folder / "train.csv", folder / "run") +
              Arguments{"--validation-file", folder / "train.csv", "--learning-rate", "0"});
  CHECK(
      contains(outcome.errors, "warning: evaluation at step 2: all 16 rows are predicted to be "));
  CHECK(contains(outcome.errors, " has an accuracy of 0.5000; a lower learning rate or a longer "));
}

TEST_CASE("a checkpoint is a model folder that every verb takes") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(16));
  succeed(train_arguments(folder / "train.csv", folder / "run") +
          Arguments{"--save-strategy", "steps", "--save-steps", "0.5", "--save-total-limit", "1"});
  CHECK(!fs::exists(folder / "run/checkpoint-1"));
  CHECK(lines_of(succeed({"predict", "--model-name-or-path", folder / "run/checkpoint-2", "--text",
                          "my card"})
                     .output)
            .size() == 1);
  // The run ended with it, so the folder of the run holds the same.
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "rng_state.json"})
    CHECK(read_whole_file(folder / (std::string("run/checkpoint-2/") + name)) ==
          read_whole_file(folder / (std::string("run/") + name)));
  succeed(train_arguments(folder / "train.csv", folder / "small") + Arguments{"--save-only-model"});
  CHECK(!fs::exists(folder / "small/optimizer.safetensors"));
}

TEST_CASE("a folder with checkpoints of an interrupted run is not written over by accident") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(16));
  fs::create_directories(folder / "run/checkpoint-3");
  CHECK(failure_of(train_arguments(folder / "train.csv", folder / "run")) ==
        folder /
            "run: holds checkpoints already; choose another --output-dir, add "
            "--overwrite-output-dir, or go on with --resume-from-checkpoint");
}

TEST_CASE("one seed gives one model, bit for bit") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(16));
  const auto weights = [&](const std::string& name, const Arguments& more) {
    succeed(train_arguments(folder / "train.csv", folder / name) + more);
    return read_whole_file(folder / (name + "/model.safetensors"));
  };
  const std::string first = weights("a", {"--seed", "1"});
  CHECK(weights("b", {"--seed", "1"}) == first);
  CHECK(weights("c", {"--seed", "2"}) != first);
  // Another order of rows, from the same weights.
  CHECK(weights("d", {"--seed", "1", "--data-seed", "7"}) != first);
  CHECK(weights("e", {"--learning-rate", "0", "--data-seed", "7"}) ==
        weights("f", {"--learning-rate", "0"}));
  CHECK(weights("g", {"--seed", "1", "--gradient-checkpointing"}) == first);
  CHECK(read_json(folder / "g/training_args.json")["gradient_checkpointing"] == true);
}

TEST_CASE("two text columns are a pair") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv",
                   "premise,hypothesis,label\na man eats,he eats,yes\na man eats,he runs,no\n");
  const Arguments columns = {"--text-column-names", "premise,hypothesis"};
  succeed(train_arguments(folder / "train.csv", folder / "run") + columns);
  const auto lines =
      lines_of(succeed(Arguments{"predict", "--model-name-or-path", folder / "run",
                                 "--predict-file", folder / "train.csv", "--format", "jsonl"} +
                       columns)
                   .output);
  REQUIRE(lines.size() == 2);
  CHECK(json::parse(lines[1])["text_pair"] == "he runs");
}

TEST_CASE("regression predicts numbers") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", "text,label\ngood,1.5\nbad,-1.5\nfine,1\npoor,-1\n");
  succeed(train_arguments(folder / "train.csv", folder / "run") +
          Arguments{"--problem-type", "regression"});
  const json config = read_json(folder / "run/config.json");
  CHECK(config["problem_type"] == "regression");
  const json line = json::parse(succeed({"predict", "--model-name-or-path", folder / "run",
                                         "--text", "good", "--format", "jsonl"})
                                    .output);
  CHECK(line["value"].is_number());
  const json metrics = json::parse(succeed({"evaluate", "--model-name-or-path", folder / "run",
                                            "--test-file", folder / "train.csv", "--json"})
                                       .output);
  CHECK(metrics.contains("eval_mse"));
}

TEST_CASE("multi-label predicts lists") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.jsonl",
                   "{\"text\": \"lost card\", \"label\": [\"card\", \"loss\"]}\n"
                   "{\"text\": \"card rate\", \"label\": [\"card\", \"rate\"]}\n"
                   "{\"text\": \"hello\", \"label\": []}\n");
  succeed(train_arguments(folder / "train.jsonl", folder / "run") +
          Arguments{"--problem-type", "multi_label_classification"});
  const json line = json::parse(succeed({"predict", "--model-name-or-path", folder / "run",
                                         "--text", "card", "--format", "jsonl"})
                                    .output);
  CHECK(line["labels"].is_array());
  CHECK(line["probabilities"].size() == 3);
  const json metrics = json::parse(succeed({"evaluate", "--model-name-or-path", folder / "run",
                                            "--test-file", folder / "train.jsonl", "--json"})
                                       .output);
  CHECK(metrics.contains("eval_f1"));
}

TEST_CASE("long texts are cut to the model's positions and counted") {
  const TemporaryFolder folder;
  std::string longest = "text,label\n";
  for (int i = 0; i < 100; ++i)
    longest += "card ";
  write_whole_file(folder / "train.csv", longest + ",a\nrate,b\n");
  const Outcome outcome = succeed(
      train_arguments(folder / "train.csv", folder / "run") +
      Arguments{"--config-overrides", "dim=16,hidden_dim=32,n_heads=2,max_position_embeddings=20"});
  CHECK(contains(outcome.output, ", 1 cut to 20"));
  CHECK(
      contains(outcome.errors, "note: --max-seq-length 128 is more than the model's 20 positions"));
}

TEST_CASE("an interrupted run leaves nothing that looks like a model") {
  for (int signal : {SIGINT, SIGTERM, SIGKILL}) {
    const TemporaryFolder folder, streams;
    write_whole_file(folder / "train.csv", questions(64));
    const pid_t child =
        start_classifier(train_arguments(folder / "train.csv", folder / "run") +
                             Arguments{"--max-steps", "1000000", "--logging-steps", "1"},
                         streams);
    // Wait for the first log entry.
    for (int i = 0; i < 1000 && (!fs::exists(folder / "run/log.jsonl") ||
                                 fs::file_size(folder / "run/log.jsonl") == 0);
         ++i)
      ::usleep(10000);
    ::kill(child, signal);
    CHECK(wait_for(child, streams).status == 128 + signal);
    CHECK(!fs::exists(folder / "run/config.json"));
    CHECK(!fs::exists(folder / "run/model.safetensors"));
    // Whole lines of JSON, but perhaps the last.
    const auto lines = lines_of(read_whole_file(folder / "run/log.jsonl"));
    REQUIRE(!lines.empty());
    CHECK(json::parse(lines[0])["step"] == 1);
  }
}
