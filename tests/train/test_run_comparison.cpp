#include <doctest/doctest.h>
#include <fmt/format.h>

#include "core/error.h"
#include "core/file.h"
#include "tests/core/contains.h"
#include "tests/core/temporary_folder.h"
#include "train/comparison_page.h"
#include "train/run_comparison.h"

using namespace minim;
using namespace minim::test;
using namespace minim::train;

namespace {

RunRecord run_of(const std::string& optimizer, int seed, double accuracy) {
  RunRecord run;
  run.folder = fmt::format("runs/{}-{}", optimizer, seed);
  run.optimizer = optimizer;
  run.seed = fmt::format("{}", seed);
  run.options = {{"learning_rate", "0.001"}, {"train_file", "train.csv"}};
  run.metrics = {{"loss", 1 - accuracy}, {"accuracy", accuracy}, {"f1", accuracy - 0.01}};
  run.trained_parameters = 1000;
  run.state_elements = optimizer == "adamw" ? 2000 : 30;
  run.predicted_state_bytes = run.measured_state_bytes = 4 * run.state_elements;
  run.peak_bytes = 3 << 20;
  run.optimizer_step_ms = 2.5;
  run.train_runtime = 10;
  return run;
}

std::vector<RunRecord> runs_of(const std::string& optimizer,
                               const std::vector<double>& accuracies) {
  std::vector<RunRecord> runs;
  for (size_t i = 0; i < accuracies.size(); ++i)
    runs.push_back(run_of(optimizer, int(i), accuracies[i]));
  return runs;
}

Comparison comparison_of(const std::vector<double>& adamw, const std::vector<double>& adafactor) {
  std::vector<RunRecord> runs = runs_of("adamw", adamw);
  for (RunRecord& run : runs_of("adafactor", adafactor))
    runs.push_back(std::move(run));
  return Comparison::of(std::move(runs));
}

const char* const arguments = R"({"optim": "adamw", "seed": 7, "learning_rate": 0.001,
  "output_dir": "somewhere"})";
const char* const results = R"({"eval_accuracy": 0.8, "eval_loss": 0.7, "eval_runtime": 2,
  "train_runtime": 12.5, "train_optimizer_step_ms": 1.5,
  "memory": {"parameters": 120, "trained_parameters": 100, "optimizer_state_elements": 200,
             "predicted_bytes": {"optimizer state": 800},
             "measured_bytes": {"optimizer state": {"current": 800, "peak": 900}},
             "measured_peak_bytes": 5000}})";

}  // namespace

TEST_CASE("a run is read from the files of its folder") {
  const TemporaryFolder folder;
  write_whole_file(folder / "training_args.json", arguments);
  write_whole_file(folder / "all_results.json", results);
  const RunRecord run = read_run(folder / "");
  CHECK(run.optimizer == "adamw");
  CHECK(run.seed == "7");
  // The folder says nothing about the experiment.
  CHECK(run.options ==
        std::vector<std::pair<std::string, std::string>>{{"learning_rate", "0.001"}});
  CHECK(run.metrics == Metrics{{"accuracy", 0.8}, {"loss", 0.7}});
  CHECK(run.trained_parameters == 100);
  CHECK(run.state_elements == 200);
  CHECK(run.predicted_state_bytes == 800);
  CHECK(run.measured_state_bytes == 800);
  CHECK(run.peak_bytes == 5000);
  CHECK(run.optimizer_step_ms == 1.5);
  CHECK(run.train_runtime == 12.5);
  CHECK(run.log_history.empty());
  write_whole_file(
      folder / "trainer_state.json",
      R"({"log_history": [{"epoch": 0.5, "loss": 3.0, "grad_norm": null, "step": 9}]})");
  CHECK(read_run(folder / "").log_history ==
        std::vector<Metrics>{{{"epoch", 0.5}, {"loss", 3.0}, {"step", 9.0}}});
}

TEST_CASE("a curve has mean, least and largest where all runs of a group have a value") {
  RunGroup group{"adamw", runs_of("adamw", {0.8, 0.8, 0.8})};
  group.runs[0].log_history = {{{"eval_loss", 3}, {"epoch", 1}}, {{"eval_loss", 2}, {"epoch", 2}}};
  group.runs[1].log_history = {{{"eval_loss", 6}, {"epoch", 1}}, {{"loss", 2}, {"epoch", 1}}};
  const Curve curve = curve_of(group, "eval_loss");
  CHECK(curve.runs == 2);  // the third has no log
  CHECK(curve.epochs == std::vector<double>{1});
  CHECK(curve.mean == std::vector<double>{4.5});
  CHECK(curve.low == std::vector<double>{3});
  CHECK(curve.high == std::vector<double>{6});
  CHECK(curve_of(group, "grad_norm").runs == 0);
}

TEST_CASE("a folder that is no finished run is refused with what to do") {
  const TemporaryFolder folder;
  const std::string path = folder / "run";
  CHECK_THROWS_WITH_AS(read_run(path),
                       (path + ": is no folder; give the --output-dir of finished runs").c_str(),
                       Error);
  const auto refused = [&](const char* args, const char* all, const std::string& sentence) {
    write_whole_file(folder / "training_args.json", args);
    write_whole_file(folder / "all_results.json", all);
    const std::string where = folder / ".";
    CHECK_THROWS_WITH_AS(read_run(where), (where + sentence).c_str(), Error);
  };
  refused("[1]", results, "/training_args.json: is not a JSON object");
  refused(arguments, "{\"eval_accuracy\": 0.", "/all_results.json: is not a JSON object");
  refused("{}", results, "/training_args.json: has no optim or no seed");
  refused(arguments, "{\"train_loss\": 1}",
          ": was not evaluated; train it with a --validation-file");
  refused(arguments, "{\"eval_accuracy\": 1}",
          "/all_results.json: has no memory; train the run again with this version");
  refused(arguments, "{\"eval_accuracy\": 1, \"memory\": {\"trained_parameters\": \"x\"}}",
          "/all_results.json: memory.trained_parameters is \"x\", must be a number");
}

TEST_CASE("runs that differ in their seeds alone are one group") {
  const Comparison comparison = comparison_of({0.80, 0.82, 0.84}, {0.7, 0.8});
  REQUIRE(comparison.groups.size() == 2);
  CHECK(comparison.groups[0].name == "adamw");
  CHECK(comparison.groups[0].summary("accuracy").mean == doctest::Approx(0.82));
  CHECK(comparison.groups[0].summary("accuracy").sd == doctest::Approx(0.02));
  CHECK(comparison.groups[1].runs.size() == 2);
  CHECK(comparison.metrics == std::vector<std::string>{"accuracy", "f1", "loss"});
  CHECK(comparison.differences.empty());
}

TEST_CASE("groups of one optimizer are named by what sets them apart") {
  std::vector<RunRecord> runs = {run_of("adamw", 1, 0.8), run_of("adamw", 1, 0.7),
                                 run_of("sgd", 1, 0.6)};
  runs[1].options[0].second = "0.01";
  runs[2].options[0].second = "0.5";
  const Comparison comparison = Comparison::of(runs);
  REQUIRE(comparison.groups.size() == 3);
  CHECK(comparison.groups[0].name == "adamw learning_rate=0.001");
  CHECK(comparison.groups[1].name == "adamw learning_rate=0.01");
  CHECK(comparison.groups[2].name == "sgd");
  REQUIRE(comparison.differences.size() == 1);
  CHECK(comparison.differences[0].first == "learning_rate");
  CHECK(comparison.differences[0].second == std::vector<std::string>{"0.001", "0.01", "0.5"});
}

TEST_CASE("the same run twice would hide the noise, so it is refused") {
  std::vector<RunRecord> runs = {run_of("adamw", 1, 0.8), run_of("adamw", 1, 0.8)};
  runs[1].folder = "runs/copy";
  CHECK_THROWS_WITH_AS(
      Comparison::of(runs),
      "compare: runs/adamw-1 and runs/copy have the same options and seed, so they "
      "are the same run; leave one out",
      Error);
}

TEST_CASE("other data are noted") {
  std::vector<RunRecord> runs = {run_of("adamw", 1, 0.8), run_of("sgd", 1, 0.7)};
  runs[1].options[1].second = "other.csv";
  const Comparison comparison = Comparison::of(runs);
  REQUIRE(comparison.notes.size() == 1);
  CHECK(comparison.notes[0] ==
        "the runs have different values of train_file: their scores say little about each other");
}

TEST_CASE("a difference within the noise is not shown") {
  // Differences -0.01, 0.02, 0.02: mean 0.01, sd 0.0173, t = 1, two degrees: p = 1 - 1 / sqrt(3).
  const auto findings = comparison_of({0.80, 0.81, 0.82}, {0.79, 0.83, 0.84}).findings();
  REQUIRE(findings.size() == 1);
  CHECK(findings[0] ==
        "adafactor: accuracy 0.8200 against 0.8100 of adamw, +0.0100: no difference shown (p = "
        "0.42, 3 pairs of runs)");
}

TEST_CASE("the interval around a difference allows for the number of comparisons") {
  // As above: mean 0.01, error 0.01, two degrees, whose quantile of 0.05 is 4.30265.
  const Difference alone = comparison_of({0.80, 0.81, 0.82}, {0.79, 0.83, 0.84}).difference(1);
  CHECK(alone.is_paired);
  CHECK(!alone.is_shown());
  CHECK(alone.low == doctest::Approx(0.01 - 0.0430265).epsilon(1e-5));
  CHECK(alone.high == doctest::Approx(0.01 + 0.0430265).epsilon(1e-5));
  std::vector<RunRecord> runs = runs_of("adamw", {0.80, 0.81, 0.82});
  for (const char* optimizer : {"adafactor", "sgd"})
    for (RunRecord& run : runs_of(optimizer, {0.79, 0.83, 0.84}))
      runs.push_back(std::move(run));
  // Of 0.025, where t of two degrees is (1 - p) * sqrt(2 / (1 - (1 - p)^2)) = 6.2053.
  CHECK(Comparison::of(runs).difference(2).high == doctest::Approx(0.01 + 0.062053).epsilon(1e-5));
}

TEST_CASE("pairs of seeds show a difference that the spread between seeds would hide") {
  // Differences -0.049, -0.05, -0.051: t = -0.05 / (0.001 / sqrt(3)) = -86.6, two degrees:
  // p = 1 - 86.6 / sqrt(7500 + 2) = 1.33e-4.
  const auto paired = comparison_of({0.70, 0.80, 0.90}, {0.651, 0.75, 0.849}).findings();
  CHECK(contains(paired[0], "-0.0500: worse (p = 0.00013, 3 pairs of runs)"));
  // Without pairs it is within the noise.
  const auto alone = comparison_of({0.70, 0.80, 0.90}, {0.651, 0.849}).findings();
  CHECK(contains(alone[0], "no difference shown (p = "));
  CHECK(contains(alone[0], ", 2 and 3 runs)"));
}

TEST_CASE("several comparisons make chance findings likelier, and p says so") {
  std::vector<RunRecord> runs = runs_of("adamw", {0.80, 0.81, 0.82});
  for (const char* optimizer : {"adafactor", "sgd"})
    for (RunRecord& run : runs_of(optimizer, {0.79, 0.83, 0.84}))
      runs.push_back(std::move(run));
  const auto findings = Comparison::of(runs).findings();
  REQUIRE(findings.size() == 2);
  CHECK(contains(findings[0], "p = 0.85"));  // twice the 0.42 of above
}

TEST_CASE("one run of each says nothing about the noise") {
  CHECK(contains(comparison_of({0.8}, {0.5}).findings()[0],
                 "no difference shown, as it takes two runs of each to see the noise"));
}

TEST_CASE("a loss is better where it is lower") {
  std::vector<RunRecord> runs = runs_of("adamw", {0.70, 0.80, 0.90});
  for (RunRecord& run : runs_of("sgd", {0.751, 0.85, 0.949}))
    runs.push_back(std::move(run));
  CHECK(contains(Comparison::of(runs, "loss").findings()[0], "-0.0500: better"));
  CHECK_THROWS_WITH_AS(Comparison::of(runs, "mcc"),
                       "compare: not all runs have the metric mcc; there are accuracy, f1, loss",
                       Error);
}

TEST_CASE("the table shows what was predicted beside what was measured") {
  CHECK(
      comparison_of({0.80, 0.82}, {0.75}).table() ==
      "optimizer  runs         accuracy               f1  state MiB  predicted  peak MiB  "
      "optimizer ms/step  train s\n"
      "adamw         2  0.8100 ± 0.0141  0.8000 ± 0.0141       0.01       0.01       3.0          "
      "     2.50     10.0\n"
      "adafactor     1  0.7500           0.7400                0.00       0.00       3.0          "
      "     2.50     10.0\n");
}

TEST_CASE("the page stands alone and holds table, findings, curves and plots of memory") {
  Comparison comparison = comparison_of({0.80, 0.81, 0.82}, {0.79, 0.83, 0.84});
  CHECK(contains(comparison_page(comparison), "The folders have no log"));
  for (RunGroup& group : comparison.groups)
    for (RunRecord& run : group.runs)
      run.log_history = {{{"eval_accuracy", 0.5}, {"epoch", 1}},
                         {{"eval_accuracy", run.metrics[1].second}, {"epoch", 2}}};
  const std::string page = comparison_page(comparison);
  CHECK(page.starts_with("<!doctype html>"));
  for (const char* part :
       {"0.8100 ± 0.0100", "no difference shown", "-0.0330 to +0.0530", "accuracy in evaluation",
        "adafactor (n = 3)", "s1 band", "accuracy over optimizer state",
        "accuracy over peak memory", "states per parameter", ">8 bytes<", "runs/adamw-0"})
    CHECK(contains(page, part));
  CHECK(!contains(page, "loss in evaluation"));  // nobody logged it
  for (const char* outside : {"http:", "https:", "src=", "@import", "<script"}) {
    // The namespace of SVG is a name, not a place.
    std::string rest = page;
    const std::string name = "xmlns='http://www.w3.org/2000/svg'";
    for (size_t at = rest.find(name); at != std::string::npos; at = rest.find(name))
      rest.erase(at, name.size());
    CHECK(!contains(rest, outside));
  }
}

TEST_CASE("many experiments are labelled by their numbers in the table, without bands") {
  std::vector<RunRecord> runs;
  for (int i = 0; i < 20; ++i) {
    runs.push_back(run_of("sgd", 1, 0.5 + 0.01 * i));
    runs.back().options[0].second = fmt::format("{}", i + 1);
    runs.back().state_elements = runs.back().measured_state_bytes = 0;
    runs.back().log_history = {{{"eval_accuracy", 0.5}, {"epoch", 1}}};
  }
  const std::string page = comparison_page(Comparison::of(runs));
  for (const char* part : {"</svg>20 sgd learning_rate=20</td>", ">20</text>", ">20 (none)</text>",
                           "needs two runs of each"})
    CHECK(contains(page, part));
  CHECK(!contains(page, "(n = "));
  CHECK(!contains(page, " band'"));
  CHECK(contains(comparison_page(Comparison::of({runs[0]})), "sgd (n = 1)"));
}
