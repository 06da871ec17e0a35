#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "tests/classifier/program.h"
#include "train/checkpoint.h"
#include "train/resume.h"

// A run that is killed at any moment, and resumed, ends as the one that was left alone.
using namespace minim;
using namespace minim::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

constexpr int kills_per_optimizer = 50, kills_per_run = 3;
constexpr int64_t steps = 30;

// Rows in batches of 3, two of them an update: 7 updates an epoch, the last shorter. Dropout, a
// warm-up, evaluations, counters of a callback, and a checkpoint after every second update.
Arguments run_arguments(const TemporaryFolder& data, const std::string& optimizer,
                        const std::string& output) {
  Arguments arguments = train_arguments(data / "train.csv", output) +
                        Arguments{"--validation-file",
                                  data / "test.csv",
                                  "--config-overrides",
                                  "dim=16,hidden_dim=32,n_heads=2,dropout=0.2,n_layers=1",
                                  "--max-steps",
                                  std::to_string(steps),
                                  "--learning-rate",
                                  "3e-3",
                                  "--warmup-steps",
                                  "5",
                                  "--per-device-train-batch-size",
                                  "3",
                                  "--gradient-accumulation-steps",
                                  "2",
                                  "--logging-steps",
                                  "1",
                                  "--eval-strategy",
                                  "steps",
                                  "--eval-steps",
                                  "4",
                                  "--save-strategy",
                                  "steps",
                                  "--save-steps",
                                  "2",
                                  "--save-total-limit",
                                  "3",
                                  "--early-stopping-patience",
                                  "99",
                                  "--optim",
                                  optimizer};
  // So that the small model has 8-bit state.
  if (optimizer == "adam8bit")
    arguments = arguments + Arguments{"--optim-args", "min_8bit_size=64,block_size=64"};
  return arguments;
}

pid_t start(const Arguments& arguments, const TemporaryFolder& streams) {
  // Results do not depend on the number of threads; on a busy machine one is quickest.
  return start_classifier(arguments, streams, "", [] { ::setenv("OMP_NUM_THREADS", "1", 1); });
}

bool has_ended(pid_t child) {
  siginfo_t info{};
  return ::waitid(P_PID, id_t(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == child;
}

int64_t lines_in(const std::string& path) {
  return fs::exists(path) ? int64_t(lines_of(read_whole_file(path)).size()) : 0;
}

void erase_times(json& value) {
  for (const char* name : {"eval_runtime", "eval_samples_per_second", "eval_steps_per_second",
                           "train_runtime", "train_samples_per_second", "train_steps_per_second",
                           "seconds", "optimizer_seconds", "best_model_checkpoint"})
    if (value.is_object()) value.erase(name);
  for (json& inner : value)
    if (inner.is_structured()) erase_times(inner);
}

json log_without_times(const std::string& run) {
  json lines = json::array();
  for (const std::string& line : lines_of(read_whole_file(run + "/log.jsonl")))
    lines.push_back(json::parse(line));
  erase_times(lines);
  return lines;
}

json state_without_times(const std::string& run) {
  json state = json::parse(read_whole_file(run + "/trainer_state.json"));
  erase_times(state);
  return state;
}

void check_equal(const std::string& run, const std::string& expected) {
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors", "/rng_state.json",
                           "/scheduler.json", "/config.json", "/tokenizer.json"}) {
    CAPTURE(file);
    CHECK(read_whole_file(run + file) == read_whole_file(expected + file));
  }
  CHECK(log_without_times(run) == log_without_times(expected));
  CHECK(state_without_times(run) == state_without_times(expected));
  for (const auto& entry : fs::directory_iterator(run))
    CHECK(!entry.path().filename().string().starts_with("."));
}

}  // namespace

TEST_CASE("killed at random moments and resumed, a run ends with the same bits") {
  const unsigned seed = std::random_device()();
  std::mt19937 random(seed);
  const auto below = [&](int64_t n) { return int64_t(random() % uint64_t(n)); };
  CAPTURE(seed);
  const TemporaryFolder data;
  write_whole_file(data / "train.csv", questions(41));
  write_whole_file(data / "test.csv", questions(9));
  for (const std::string optimizer : {"adamw", "adafactor", "adam8bit"}) {
    CAPTURE(optimizer);
    const std::string expected = data / (optimizer + "-alone");
    {
      const TemporaryFolder streams;
      REQUIRE(wait_for(start(run_arguments(data, optimizer, expected), streams), streams).status ==
              0);
    }
    int kills[2] = {0, 0}, without_checkpoint = 0;
    while (kills[0] + kills[1] < kills_per_optimizer) {
      const std::string output = data / "run", log = output + "/log.jsonl";
      for (int kill = 0, finished = 0; finished == 0; ++kill) {
        Arguments arguments = run_arguments(data, optimizer, output);
        const auto checkpoints = train::list_checkpoints(output);
        if (!checkpoints.empty())
          arguments = arguments + Arguments{"--resume-from-checkpoint"};
        else if (kill > 0)
          ++without_checkpoint;
        const TemporaryFolder streams;
        const pid_t child = start(arguments, streams);
        const bool terminates = below(3) == 0;
        if (kill < kills_per_run) {
          // Before training, in it, or at its end: a random line of the log, and then a moment
          // somewhere in two updates.
          const int64_t wanted = below(6) == 0 ? 0 : lines_in(log) + 1 + below(20);
          for (int i = 0; i < 20000 && !has_ended(child) && lines_in(log) < wanted; ++i)
            ::usleep(100);
          ::usleep(useconds_t(below(wanted == 0 ? 15000 : 3000)));
          ::kill(child, terminates ? SIGTERM : SIGKILL);
        }
        const Outcome outcome = wait_for(child, streams);
        CAPTURE(outcome.errors);
        finished = outcome.status == 0;
        if (!finished) {
          REQUIRE(outcome.status == (terminates ? 143 : 137));
          ++kills[terminates];
          if (terminates && contains(outcome.errors, "interrupted after step"))
            CHECK(contains(outcome.errors, "; to go on, repeat the command with "));
        }
        // Whatever is there is complete.
        for (const auto& [step, path] : train::list_checkpoints(output))
          CHECK(train::is_resumable(path));
      }
      check_equal(output, expected);
      fs::remove_all(output);
    }
    MESSAGE(optimizer << ": " << kills[0] << " SIGKILL, " << kills[1] << " SIGTERM, "
                      << without_checkpoint << " before the first checkpoint; seed " << seed);
  }
}
