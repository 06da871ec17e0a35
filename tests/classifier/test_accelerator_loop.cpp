#include <cstdlib>

#include <fmt/format.h>

#include "tests/classifier/program.h"

// examples/accelerator_loop beside the Trainer, on banking77.
using namespace minim;
using namespace minim::test;
using nlohmann::json;

namespace {

// The header and some rows from all over a file.
std::string every(int64_t n, const std::string& path) {
  const auto lines = lines_of(read_whole_file(path));
  std::string some = lines[0] + "\n";
  for (size_t i = 1; i < lines.size(); i += size_t(n))
    some += lines[i] + "\n";
  return some;
}

}  // namespace

TEST_CASE("a loop of one's own trains the Trainer's bits on banking77") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", every(60, MINIM_EXAMPLES "/banking77/train.csv"));
  write_whole_file(folder / "test.csv", every(100, MINIM_EXAMPLES "/banking77/test.csv"));
  for (const std::string optimizer : {"adamw", "adafactor", "adam8bit"}) {
    CAPTURE(optimizer);
    const std::string options = " --train-file " + folder / "train.csv" + " --validation-file " +
                                folder / "test.csv" + " --optim " + optimizer +
                                " --learning-rate 1e-3 --num-train-epochs 2 --seed 7"
                                " --per-device-train-batch-size 16 --vocab-size 300"
                                " --gradient-accumulation-steps 3 --output-dir ";
    const std::string loop = folder / (optimizer + "-loop"), run = folder / (optimizer + "-run");
    const std::string command =
        MINIM_ACCELERATOR_LOOP + options + loop + " > " + folder / "out" + " 2>&1";
    REQUIRE(std::system(command.c_str()) == 0);
    Arguments arguments = {"train", "--preset", "tiny", "--skip-unseen-labels"};
    const std::string all = options + run + " ";
    for (size_t at = 1, end = 0; (end = all.find(' ', at)) != std::string::npos; at = end + 1)
      arguments.push_back(all.substr(at, end - at));
    succeed(arguments);
    CHECK(read_whole_file(loop + "/model.safetensors") ==
          read_whole_file(run + "/model.safetensors"));
    CHECK(read_whole_file(loop + "/config.json") == read_whole_file(run + "/config.json"));
    const double accuracy =
        json::parse(read_whole_file(run + "/eval_results.json"))["eval_accuracy"];
    CHECK(contains(read_whole_file(folder / "out"), fmt::format("accuracy {:.4f}\n", accuracy)));
    // Records like the Trainer's, so that the two stand side by side and differ in one option
    // alone.
    const json results = json::parse(read_whole_file(loop + "/all_results.json"));
    CHECK(results["eval_accuracy"] == accuracy);
    const auto options_of = [](const std::string& run_folder) {
      return json::parse(read_whole_file(run_folder + "/training_args.json"));
    };
    const json ours = options_of(loop), theirs = options_of(run);
    CHECK(ours["training_loop"] == "Accelerator");
    CHECK(theirs["training_loop"] == "Trainer");
    for (const auto& option : ours.items()) {
      const std::string& name = option.key();
      if (name == "training_loop" || name == "output_dir" || name == "save_only_model") continue;
      CAPTURE(name);
      CHECK(option.value() == theirs[name]);
    }
  }
}
