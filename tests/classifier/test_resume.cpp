#include <csignal>
#include <filesystem>
#include <memory>
#include <sys/mount.h>
#include <sys/resource.h>

#include "tests/classifier/program.h"
#include "train/checkpoint.h"

// --resume-from-checkpoint, signals and what else guards an output folder.
using namespace minim;
using namespace minim::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const Arguments saves = {"--save-strategy", "steps", "--save-steps", "2", "--max-steps", "6"};
const Arguments resumes = {"--resume-from-checkpoint"};

// A finished run of six updates with three checkpoints.
struct SavedRun {
  SavedRun() {
    write_whole_file(folder / "train.csv", questions(16));
    write_whole_file(folder / "test.csv", questions(4));
    succeed(arguments);
  }
  // As if the process had been killed after so many updates.
  void forget_after(int64_t step) const {
    for (const auto& entry : train::list_checkpoints(run))
      if (entry.step > step) fs::remove_all(entry.path);
    for (const auto& entry : fs::directory_iterator(run))
      if (!entry.is_directory()) fs::remove(entry.path());
  }
  std::string bytes(const std::string& name) const { return read_whole_file(run + "/" + name); }

  TemporaryFolder folder;
  std::string run = folder / "run";
  Arguments arguments = train_arguments(folder / "train.csv", run) + saves;
};

// Runs until the log has a line, then does something to the process.
Outcome run_and(const Arguments& arguments, const std::string& log,
                const std::function<void(pid_t)>& act) {
  const TemporaryFolder streams;
  const pid_t child = start_classifier(arguments, streams);
  for (int i = 0; i < 5000 && (!fs::exists(log) || fs::file_size(log) == 0); ++i)
    ::usleep(2000);
  act(child);
  return wait_for(child, streams);
}

}  // namespace

TEST_CASE("a run goes on from its newest checkpoint, from one that is named, or from its end") {
  const SavedRun run;
  const std::string weights = run.bytes("model.safetensors");
  const std::string state = run.bytes("optimizer.safetensors");
  for (const Arguments& more :
       {resumes, Arguments{"--resume-from-checkpoint=" + run.run + "/checkpoint-2"},
        Arguments{"--resume-from-checkpoint", run.run},
        Arguments{"--resume_from_checkpoint=true"}}) {
    run.forget_after(4);
    succeed(run.arguments + more);
    CHECK(run.bytes("model.safetensors") == weights);
    CHECK(run.bytes("optimizer.safetensors") == state);
  }
  succeed(run.arguments + resumes);
  CHECK(run.bytes("model.safetensors") == weights);
  // Into a folder of its own.
  succeed(train_arguments(run.folder / "train.csv", run.folder / "other") + saves +
          Arguments{"--resume-from-checkpoint", run.run + "/checkpoint-4"});
  CHECK(read_whole_file(run.folder / "other/model.safetensors") == weights);
}

TEST_CASE("a run may go on for longer, and what has changed is told") {
  const SavedRun run;
  const Outcome outcome = succeed(run.arguments + resumes +
                                  Arguments{"--max-steps", "9", "--logging-dir", run.folder / "l"});
  CHECK(contains(outcome.errors,
                 "note: max_steps: is 9, " + run.run +
                     "/checkpoint-6 had 6; the learning rate follows the new number of updates\n"));
  CHECK(!contains(outcome.errors, "logging_dir"));  // of an output
  CHECK(json::parse(run.bytes("trainer_state.json"))["global_step"] == 9);
}

TEST_CASE("resuming with other options or data is refused, and nothing is changed") {
  const SavedRun run;
  const std::string log = run.bytes("log.jsonl");
  CHECK(failure_of(run.arguments + resumes +
                   Arguments{"--learning-rate", "0.1", "--max-seq-length", "9"}) ==
        run.run +
            "/checkpoint-6: learning_rate is 0.1 instead of 5e-05, max_seq_length is 9 instead of "
            "128; a resumed run must have the options that it began with, as far as they decide "
            "its result");
  CHECK(contains(failure_of(run.arguments + resumes +
                            Arguments{"--label-smoothing-factor", "0.1", "--neftune-noise-alpha",
                                      "5", "--dataloader-drop-last"}),
                 "/checkpoint-6: dataloader_drop_last is true instead of false, "
                 "label_smoothing_factor is 0.1 instead of 0, neftune_noise_alpha is 5.0 instead "
                 "of null; a resumed run"));
  CHECK(contains(failure_of(run.arguments + resumes + Arguments{"--optim", "sgd"}),
                 "optim is \"sgd\" instead of \"adamw\""));
  write_whole_file(run.folder / "train.csv", questions(18));
  CHECK(contains(failure_of(run.arguments + resumes), "its run had other training data"));
  CHECK(run.bytes("log.jsonl") == log);
}

TEST_CASE("where there is nothing to resume from, that is said") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(16));
  const Arguments train = train_arguments(folder / "train.csv", folder / "run");
  CHECK(failure_of(train + resumes) ==
        (folder / "run: no such folder; there is nothing to resume from"));
  CHECK(!fs::exists(folder / "run"));
  CHECK(contains(failure_of(train + resumes + Arguments{"--overwrite-output-dir"}, 2),
                 "--resume-from-checkpoint: goes on with the run that"));
  // Another run's checkpoint does not open a folder that holds a run.
  const SavedRun run;
  CHECK(contains(failure_of(train + Arguments{"--output-dir", trained_model(),
                                              "--resume-from-checkpoint", run.run}),
                 "holds a model already"));
}

TEST_CASE("an overwritten run's checkpoints go when the new run has one, and not before") {
  const SavedRun run;
  succeed(run.arguments + Arguments{"--overwrite-output-dir", "--seed", "3", "--max-steps", "3"});
  const auto left = train::list_checkpoints(run.run);
  REQUIRE(left.size() == 2);
  CHECK(left[1].step == 3);
  succeed(run.arguments + Arguments{"--overwrite-output-dir", "--save-strategy", "no"});
  CHECK(train::list_checkpoints(run.run).empty());
}

TEST_CASE("Ctrl-C and SIGTERM save a checkpoint and say how to go on") {
  for (const int signal : {SIGINT, SIGTERM}) {
    const TemporaryFolder folder;
    write_whole_file(folder / "train.csv", questions(64));
    const Arguments train = train_arguments(folder / "train.csv", folder / "run") +
                            Arguments{"--max-steps", "1000000", "--logging-steps", "1"};
    const Outcome outcome =
        run_and(train, folder / "run/log.jsonl", [&](pid_t child) { ::kill(child, signal); });
    CHECK(outcome.status == 128 + signal);
    const auto checkpoints = train::list_checkpoints(folder / "run");
    REQUIRE(checkpoints.size() == 1);
    const std::string step = std::to_string(checkpoints[0].step);
    CHECK(outcome.errors.ends_with(
        "interrupted after step " + step + " of 1000000; saved to " + folder / "run/checkpoint-" +
        step +
        "; to go on, repeat the command with --resume-from-checkpoint and without "
        "--overwrite-output-dir\n"));
  }
}

TEST_CASE("two runs do not share an output folder") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(64));
  const Arguments train = train_arguments(folder / "train.csv", folder / "run") +
                          Arguments{"--max-steps", "1000000", "--logging-steps", "1"};
  run_and(train, folder / "run/log.jsonl", [&](pid_t child) {
    CHECK(failure_of(train + Arguments{"--overwrite-output-dir"}) ==
          folder / "run: another run (process " + std::to_string(child) +
              ") is writing to this folder; wait for its end or choose another one");
    ::kill(child, SIGKILL);
  });
  // The lock of a killed process is none.
  succeed(train + Arguments{"--max-steps", "2"});
  CHECK(!fs::exists(folder / "run/.minim-lock"));
}

TEST_CASE("a disk that fills up while saving leaves the checkpoint before, and the run goes on") {
  const TemporaryFolder folder;
  const std::string disk = folder / "disk";
  fs::create_directory(disk);
  // Room for two checkpoints and a bit.
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=512k") != 0) {
    MESSAGE("not checked: no file system can be mounted here");
    return;
  }
  const std::shared_ptr<const void> mounted(disk.c_str(),
                                            [&](const void*) { ::umount(disk.c_str()); });
  write_whole_file(folder / "train.csv", questions(16));
  const Arguments train =
      train_arguments(folder / "train.csv", disk + "/run") +
      Arguments{"--max-steps", "8", "--save-strategy", "steps", "--save-steps", "1"};
  CHECK(contains(failure_of(train), "No space left on device"));
  const auto checkpoints = train::list_checkpoints(disk + "/run");
  REQUIRE(!checkpoints.empty());
  CHECK(checkpoints.size() < 8);
  // With room again.
  for (size_t i = 0; i + 1 < checkpoints.size(); ++i)
    fs::remove_all(checkpoints[i].path);
  succeed(train + resumes + Arguments{"--save-total-limit", "1"});
  CHECK(fs::exists(disk + "/run/config.json"));
}

TEST_CASE("the best model is saved with its evaluation, and a run may stop early") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(32));
  write_whole_file(folder / "test.csv", questions(8));
  const Arguments train = train_arguments(folder / "train.csv", folder / "run") +
                          Arguments{"--validation-file",  folder / "test.csv",
                                    "--max-steps",        "-1",
                                    "--num-train-epochs", "40",
                                    "--learning-rate",    "1e-2"};
  const Outcome outcome =
      succeed(train + Arguments{"--load-best-model-at-end", "--metric-for-best-model", "accuracy",
                                "--save-total-limit", "1", "--early-stopping-patience", "8"});
  const json state = json::parse(read_whole_file(folder / "run/trainer_state.json"));
  CHECK(state["global_step"] < 160);
  CHECK(state["best_metric"] == 1);
  // Eight more evaluations brought nothing better: 4 updates an epoch.
  const int64_t best = state["best_global_step"];
  CHECK(state["global_step"] == best + 32);
  CHECK(state["best_model_checkpoint"] == folder / "run/checkpoint-" + std::to_string(best));
  CHECK(json::parse(read_whole_file(folder / "run/eval_results.json"))["eval_accuracy"] == 1);
  CHECK(read_whole_file(folder / "run/model.safetensors") ==
        read_whole_file(folder / "run/checkpoint-" + std::to_string(best) + "/model.safetensors"));
  CHECK(train::list_checkpoints(folder / "run").size() == 2);
  CHECK(contains(failure_of(train + Arguments{"--overwrite-output-dir", "--metric-for-best-model",
                                              "accuarcy"}),
                 "metric_for_best_model: there is no \"eval_accuarcy\"; there are eval_loss, "));
  CHECK(contains(
      failure_of(train + Arguments{"--load-best-model-at-end", "--save-strategy", "no"}, 2),
      "load_best_model_at_end: save_strategy must be that of evaluation"));
}

TEST_CASE("zero epochs are refused; batches and updates larger than the data are not") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(8));
  const Arguments train =
      train_arguments(folder / "train.csv", folder / "run") + Arguments{"--max-steps", "-1"};
  CHECK(failure_of(train + Arguments{"--num-train-epochs", "0"}, 2) ==
        "num_train_epochs: must be above 0 unless max_steps is, is 0");
  succeed(train + Arguments{"--num-train-epochs", "2", "--per-device-train-batch-size", "100"});
  CHECK(json::parse(read_whole_file(folder / "run/trainer_state.json"))["global_step"] == 2);
  succeed(train + Arguments{"--num-train-epochs", "2", "--per-device-train-batch-size", "3",
                            "--gradient-accumulation-steps", "100", "--overwrite-output-dir"});
  CHECK(json::parse(read_whole_file(folder / "run/trainer_state.json"))["global_step"] == 2);
}
