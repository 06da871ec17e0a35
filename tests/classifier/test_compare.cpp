#include <filesystem>

#include "tests/classifier/program.h"

// compare: from runs that train made to a table and a page.
using namespace minim;
using namespace minim::test;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

// Two seeds under each of two optimizers.
Arguments trained_runs(const TemporaryFolder& folder) {
  write_whole_file(folder / "train.csv", questions(16));
  Arguments runs;
  for (const std::string optimizer : {"adamw", "adafactor"})
    for (const std::string seed : {"1", "2"}) {
      const std::string run = folder / (optimizer + "-" + seed);
      succeed(train_arguments(folder / "train.csv", run) + Arguments{"--optim", optimizer, "--seed",
                                                                     seed, "--validation-file",
                                                                     folder / "train.csv"});
      runs.push_back(run);
    }
  return runs;
}

}  // namespace

TEST_CASE("runs are compared by optimizer, with state predicted and measured") {
  const TemporaryFolder folder;
  const Arguments runs = trained_runs(folder);
  const std::string page = folder / "report.html";

  const Outcome outcome = succeed(Arguments{"compare"} + runs + Arguments{"--output", page});
  const auto lines = lines_of(outcome.output);
  REQUIRE(lines.size() == 5);  // header, two groups, a finding, the page
  CHECK(lines[1].starts_with("adamw         2  "));
  CHECK(lines[2].starts_with("adafactor     2  "));
  CHECK(contains(lines[3], " of adamw, "));
  CHECK(lines[4] == page + " has it with pictures");
  CHECK(contains(read_whole_file(page), "<svg "));

  const json all = json::parse(succeed(Arguments{"compare", "--json"} + runs).output);
  REQUIRE(all["groups"].size() == 2);
  for (const json& group : all["groups"]) {
    CHECK(group["predicted_state_bytes"] == group["measured_state_bytes"]);
    CHECK(group["metrics"]["accuracy"]["values"].size() == 2);
    CHECK(group["optimizer_step_ms"] > 0);
  }
  const json& adamw = all["groups"][0];
  CHECK(adamw["state_elements"] == 2 * adamw["trained_parameters"].get<int64_t>());
  CHECK(all["groups"][1]["state_elements"] < adamw["state_elements"]);
}

TEST_CASE("what compare cannot use is refused in a sentence") {
  CHECK(failure_of({"compare", "/nonexistent/run"}) ==
        "/nonexistent/run: is no folder; give the --output-dir of finished runs");
  CHECK(contains(failure_of({"compare", trained_model()}),
                 ": was not evaluated; train it with a --validation-file"));
  const Outcome outcome = classifier({"compare"});
  CHECK(outcome.status == 2);
  CHECK(contains(outcome.errors, "runs"));
}
