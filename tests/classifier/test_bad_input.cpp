#include <csignal>
#include <filesystem>
#include <memory>
#include <sys/mount.h>
#include <sys/resource.h>

#include "tests/classifier/program.h"

// Whatever goes wrong: one sentence on standard error, exit status 1 (2 for a usage error), and
// nothing half-written.
using namespace minim;
using namespace minim::test;
namespace fs = std::filesystem;

namespace {

// A folder with train.csv, for runs that fail before they write anything.
struct BadRun {
  explicit BadRun(const std::string& csv) { write_whole_file(folder / "train.csv", csv); }

  std::string failure(const Arguments& more = {}, int status = 1) const {
    const std::string error =
        failure_of(train_arguments(folder / "train.csv", folder / "run") + more, status);
    CHECK(!fs::exists(folder / "run"));
    return error;
  }

  TemporaryFolder folder;
};

void copy_model(const std::string& to) {
  fs::copy(trained_model(), to);
}

}  // namespace

TEST_CASE("usage errors have status 2 and say which option") {
  const auto usage_error = [](const Arguments& arguments) {
    const Outcome outcome = classifier(arguments);
    CHECK(outcome.status == 2);
    CHECK(outcome.output.empty());
    return outcome.errors;
  };
  const Arguments train = {"train", "--train-file", "a.csv", "--output-dir", "/nonexistent/run"};
  CHECK(contains(usage_error({}), "subcommand"));
  CHECK(usage_error({"trian"}) ==
        "error: there is no verb \"trian\"; classifier --help lists all\n");
  CHECK(contains(usage_error(train + Arguments{"--preset", "tiny", "--learn-rate", "1"}),
                 "--learn-rate"));
  CHECK(contains(usage_error(train + Arguments{"--preset", "large"}), "--preset: large"));
  CHECK(contains(usage_error(train + Arguments{"--preset", "tiny", "--max-steps", "few"}),
                 "--max-steps"));
  CHECK(contains(usage_error(train), "--preset"));
  CHECK(contains(usage_error(train + Arguments{"--preset", "tiny", "--learning-rate", "-1"}),
                 "learning_rate: must be at least 0, is -1"));
  CHECK(contains(usage_error(train + Arguments{"--preset", "tiny", "--eval-strategy", "epoch"}),
                 "--eval-strategy epoch: needs a --validation-file"));
  CHECK(contains(usage_error(train + Arguments{"--preset", "tiny", "--max-seq-length", "2"}),
                 "--max-seq-length: must be at least 3, is 2"));
  CHECK(contains(usage_error({"train", "--preset", "tiny", "--output-dir", "x"}), "--train-file"));
  CHECK(contains(usage_error({"predict", "--text", "a"}), "--model-name-or-path"));
  CHECK(contains(usage_error({"train", "--config"}), "--config: needs a file name"));
  CHECK(contains(usage_error({"train", "--config", "/nonexistent.json"}),
                 "/nonexistent.json: cannot be opened: No such file"));
}

TEST_CASE("a configuration file is one flat JSON object") {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& json) {
    write_whole_file(folder / "c.json", json);
    return failure_of({"train", "--config", folder / "c.json"}, 2);
  };
  CHECK(contains(error("{"), "c.json: is not JSON"));
  CHECK(contains(error("[1]"), "c.json: must hold one JSON object"));
  CHECK(contains(error("{\"seed\": [1, 2]}"), "c.json: seed must be a string, a number"));
}

TEST_CASE("training data without rows, with one class or without labels is refused") {
  CHECK(contains(BadRun("").failure(), "train.csv: "));
  CHECK(contains(BadRun("text,label\n").failure(), "train.csv: "));
  CHECK(contains(BadRun("text,label\nx,a\ny,a\n").failure(), "only one class ('a', 2 rows)"));
  CHECK(contains(BadRun("text,other,more\nx,a,b\n").failure(), "train.csv: "));
  CHECK(contains(BadRun("text,label\nx,a\ny,b,c\n").failure(), "line 3"));
  CHECK(contains(BadRun("text,label\nx,a\n\"y,b\n").failure(), "line 3"));
  CHECK(contains(BadRun("text,label\nx,a\n" + from_hex("ff") + ",b\n").failure(), "line 3"));
  CHECK(contains(BadRun("text,label\nx,a\ny,b\n").failure({"--problem-type", "regression"}),
                 "line 2"));
}

TEST_CASE("files that are not there are named") {
  const BadRun run(questions(4));
  CHECK(run.failure({"--train-file", run.folder / "none.csv"}) ==
        (run.folder / "none.csv: no such file"));
  CHECK(contains(run.failure({"--validation-file", run.folder / "none.csv"}),
                 run.folder / "none.csv"));
  CHECK(contains(run.failure({"--train-file", run.folder.path(), "--file-format", "csv"}),
                 run.folder.path()));
  CHECK(contains(run.failure({"--tokenizer-name", run.folder / "none"}), run.folder / "none"));
}

TEST_CASE("options that leave nothing to do, or too much, are refused") {
  const BadRun run(questions(8));
  CHECK(run.failure({"--freeze", "*"}) ==
        "--freeze *: freezes every parameter; nothing is left to train");
  CHECK(contains(run.failure({"--freeze", "nope"}), "\"nope\""));
  CHECK(run.failure({"--max-steps", "-1", "--num-train-epochs", "1e300"}) ==
        "num_train_epochs: 1e+300 of 1 updates each are too many");
  CHECK(contains(run.failure({"--optim", "adamx"}), "\"adamx\" is unknown; there are adamw"));
  CHECK(contains(run.failure({"--config-overrides", "dim=13"}), "must divide dim 13"));
}

TEST_CASE("a validation label that training lacks is refused, or skipped on request") {
  const BadRun run(questions(16));
  write_whole_file(run.folder / "test.csv", questions(4) + "hello,greeting\nhi,greeting\n");
  const std::string error = run.failure({"--validation-file", run.folder / "test.csv"});
  CHECK(contains(error, "test.csv: line 6, field 2: label 'greeting'"));
  CHECK(contains(error, "--skip-unseen-labels"));
  const Outcome skipped =
      succeed(train_arguments(run.folder / "train.csv", run.folder / "run") +
              Arguments{"--validation-file", run.folder / "test.csv", "--skip-unseen-labels"});
  CHECK(contains(skipped.output, "test.csv: 4 rows"));
  CHECK(contains(skipped.errors, "note: "));

  const Arguments evaluate = {"evaluate", "--model-name-or-path", trained_model(), "--test-file",
                              run.folder / "test.csv"};
  CHECK(contains(failure_of(evaluate), "label 'greeting'"));
  succeed(evaluate + Arguments{"--skip-unseen-labels"});
}

TEST_CASE("a validation file without labels is refused before training, however they are missing") {
  const BadRun run(questions(16));
  const auto error = [&](const std::string& name, const std::string& contents) {
    write_whole_file(run.folder / name, contents);
    return run.failure({"--validation-file", run.folder / name});
  };
  CHECK(contains(error("none.csv", "text\nmy card\n"),
                 "none.csv: line 1: no column 'label'; an evaluation file needs labels"));
  CHECK(contains(error("none.jsonl", "{\"text\": \"my card\"}\n"),
                 "none.jsonl: line 1: no key 'label'; an evaluation file needs labels"));
  CHECK(contains(error("minus.csv", "text,label\nmy card,-1\n"),
                 "minus.csv: line 2, field 2: label '-1' does not occur in the training file"));
  CHECK(contains(error("empty.csv", "text,label\nmy card,\n"),
                 "empty.csv: line 2, field 2: label is empty"));
  CHECK(contains(error("header.csv", "text,label\n"), "header.csv: no rows"));
}

TEST_CASE("a vocabulary that is larger than the embedding table is refused") {
  const TemporaryFolder folder;
  copy_model(folder / "model");
  std::string pieces = read_whole_file(folder / "model/vocab.txt");
  for (int i = 0; i < 100; ++i)
    pieces += "extra" + std::to_string(i) + "\n";
  fs::remove(folder / "model/tokenizer.json");
  write_whole_file(folder / "model/vocab.txt", pieces);
  const std::string error =
      failure_of({"predict", "--model-name-or-path", folder / "model", "--text", "a"});
  CHECK(contains(error, "the tokenizer has ids up to "));
  CHECK(contains(error, "the embedding table "));
  write_whole_file(folder / "train.csv", questions(8));
  CHECK(failure_of({"train", "--model-name-or-path", folder / "model", "--train-file",
                    folder / "train.csv", "--output-dir", folder / "run"}) == error);
}

TEST_CASE("a model folder that lacks a file is refused by name") {
  const std::vector<std::pair<std::string, std::string>> needed = {
      {"config.json", "config.json"}, {"model.safetensors", "model.safetensors"}};
  for (const auto& [file, named] : needed) {
    const TemporaryFolder folder;
    copy_model(folder / "model");
    fs::remove(folder / ("model/" + file));
    CHECK(contains(failure_of({"predict", "--model-name-or-path", folder / "model", "--text", "a"}),
                   named));
    CHECK(contains(failure_of({"evaluate", "--model-name-or-path", folder / "model", "--test-file",
                               folder / "model/config.json"}),
                   named));
  }
  const TemporaryFolder folder;
  copy_model(folder / "model");
  // Either of the two vocabularies will do, and the other files only add to them.
  for (const char* file : {"special_tokens_map.json", "tokenizer_config.json", "tokenizer.json"}) {
    fs::remove(folder / (std::string("model/") + file));
    succeed({"predict", "--model-name-or-path", folder / "model", "--text", "a"});
  }
  fs::remove(folder / "model/vocab.txt");
  const std::string error =
      failure_of({"predict", "--model-name-or-path", folder / "model", "--text", "a"});
  CHECK(contains(error, "vocab.txt"));
  CHECK(contains(error, "tokenizer.json"));
  const std::string none =
      folder / "none: no such folder; a model is a folder on this machine, nothing is downloaded";
  CHECK(failure_of({"predict", "--model-name-or-path", folder / "none", "--text", "a"}) == none);
  CHECK(failure_of({"tokenize", "--model-name-or-path", folder / "none", "--text", "a"}) == none);
  CHECK(failure_of({"train", "--model-name-or-path", folder / "none", "--train-file", "a.csv",
                    "--output-dir", folder / "run"}) == none);
}

TEST_CASE("a damaged model file is refused by name") {
  const TemporaryFolder folder;
  copy_model(folder / "model");
  fs::resize_file(folder / "model/model.safetensors", 1000);
  CHECK(contains(failure_of({"predict", "--model-name-or-path", folder / "model", "--text", "a"}),
                 "model.safetensors"));
}

TEST_CASE("a model in the output folder is not replaced unasked") {
  const TemporaryFolder folder;
  copy_model(folder / "run");
  write_whole_file(folder / "train.csv", questions(8));
  const std::string before = read_whole_file(folder / "run/model.safetensors");
  const Arguments train = train_arguments(folder / "train.csv", folder / "run");
  CHECK(failure_of(train) ==
        (folder / "run: holds a model already; choose another --output-dir, add "
                  "--overwrite-output-dir, or go on with "
                  "--resume-from-checkpoint"));
  CHECK(read_whole_file(folder / "run/model.safetensors") == before);
  succeed(train + Arguments{"--overwrite-output-dir"});
  CHECK(read_whole_file(folder / "run/model.safetensors") != before);
}

TEST_CASE("an output folder that cannot be made or written to is refused before training") {
  const BadRun run(questions(8));
  const Arguments train = train_arguments(run.folder / "train.csv", "");
  const auto error = [&](const std::string& output) {
    Arguments arguments = train_arguments(run.folder / "train.csv", output);
    return failure_of(arguments);
  };
  CHECK(contains(error(run.folder / "train.csv/run"), "the folder cannot be made"));
  CHECK(contains(error("/proc/self"), "the folder cannot be written to"));
}

TEST_CASE("a full disk ends the run with a sentence and keeps the old model") {
  // No file of the program may grow beyond 8000 bytes: the weights do not fit.
  const auto limit = [] {
    const rlimit most{.rlim_cur = 8000, .rlim_max = 8000};
    ::setrlimit(RLIMIT_FSIZE, &most);
    ::signal(SIGXFSZ, SIG_IGN);
  };
  const TemporaryFolder folder;
  copy_model(folder / "run");
  write_whole_file(folder / "train.csv", questions(8));
  const auto files_before = fs::directory_iterator(folder / "run");
  const auto files = std::distance(begin(files_before), end(files_before));
  const std::string config = read_whole_file(folder / "run/config.json");
  const std::string weights = read_whole_file(folder / "run/model.safetensors");
  const Outcome outcome = classifier(
      train_arguments(folder / "train.csv", folder / "run") + Arguments{"--overwrite-output-dir"},
      "", limit);
  CAPTURE(outcome.errors);
  CHECK(outcome.status == 1);
  CHECK(contains(outcome.errors, "model.safetensors: writing "));
  CHECK(contains(outcome.errors, "File too large"));
  CHECK(read_whole_file(folder / "run/config.json") == config);
  CHECK(read_whole_file(folder / "run/model.safetensors") == weights);
  const auto files_after = fs::directory_iterator(folder / "run");
  CHECK(std::distance(begin(files_after), end(files_after)) == files);
}

TEST_CASE("a file system without room is noticed before training") {
  const TemporaryFolder folder;
  const std::string disk = folder / "disk";
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
    MESSAGE("not checked: no file system can be mounted here");
    return;
  }
  write_whole_file(folder / "train.csv", questions(8));
  const Arguments train = train_arguments(folder / "train.csv", disk + "/run");
  // Room for the records, not for the weights.
  CHECK(contains(failure_of(train), "No space left on device"));
  CHECK(!fs::exists(disk + "/run/config.json"));
  fs::remove_all(disk + "/run");
  // No room at all.
  {
    std::ofstream filler(disk + "/filler");
    filler << std::string(100000, 'x');
  }
  CHECK(contains(failure_of(train), "the folder cannot be written to (No space left on device)"));
  ::umount(disk.c_str());
}

TEST_CASE("a read-only file system is noticed before training, and can be predicted from") {
  const TemporaryFolder folder;
  const std::string disk = folder / "disk";
  fs::create_directory(disk);
  if (::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=4m") != 0) {
    MESSAGE("not checked: no file system can be mounted here");
    return;
  }
  const std::shared_ptr<const void> mounted(disk.c_str(),
                                            [&](const void*) { ::umount(disk.c_str()); });
  copy_model(disk + "/run");
  write_whole_file(folder / "train.csv", questions(8));
  REQUIRE(::mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "") == 0);
  const auto train = [&](const std::string& output, const std::string& how) {
    return failure_of(train_arguments(folder / "train.csv", disk + output) + Arguments{how});
  };
  const std::string cannot =
      "/run: the folder cannot be written to (Read-only file system); choose another one";
  CHECK(train("/run", "--overwrite-output-dir") == disk + cannot);
  CHECK(train("/run", "--resume-from-checkpoint") == disk + cannot);
  CHECK(train("/new/run", "--cased") ==
        disk + "/new/run: the folder cannot be made (Read-only file system); choose another one");
  succeed({"predict", "--model-name-or-path", disk + "/run", "--text", "my card"});
}

TEST_CASE("predictions that cannot be written are a failure") {
  const auto to_full = [] { ::dup2(::open("/dev/full", O_WRONLY), 1); };
  const Outcome outcome =
      classifier({"predict", "--model-name-or-path", trained_model(), "--text", "a"}, "", to_full);
  CHECK(outcome.status == 1);
  CHECK(contains(outcome.errors, "error: standard output cannot be written"));
}

TEST_CASE("a loss that is not finite ends the run, and nothing is saved") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(16));
  const std::string error = failure_of(train_arguments(folder / "train.csv", folder / "run") +
                                       Arguments{"--learning-rate", "1e38", "--max-steps", "50"});
  CHECK(error.starts_with("step "));
  CHECK(contains(error, "not finite"));
  CHECK(contains(error, "a lower learning rate"));
  CHECK(!fs::exists(folder / "run/config.json"));
  CHECK(contains(read_whole_file(folder / "run/log.jsonl"), "null"));
}

TEST_CASE("text that is not UTF-8 is refused with its line, or replaced on request") {
  const std::string bad = "my card\nlost" + from_hex("ff") + "\n";
  const Arguments predict = {"predict", "--model-name-or-path", trained_model()};
  const Outcome outcome = classifier(predict, bad);
  CHECK(outcome.status == 1);
  CHECK(contains(outcome.errors, "error: standard input: line 2: byte 5 is not UTF-8"));
  CHECK(lines_of(succeed(predict + Arguments{"--replace-invalid-utf8"}, bad).output).size() == 2);
  const Outcome tokens = classifier({"tokenize", "--model-name-or-path", trained_model()}, bad);
  CHECK(tokens.status == 1);
  CHECK(contains(tokens.errors, "standard input: line 2: "));
}
