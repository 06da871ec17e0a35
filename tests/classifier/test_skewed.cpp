#include <cstdlib>

#include "tests/classifier/program.h"

// Data in which one class is rare, and parts of a data set.
using namespace minim;
using namespace minim::test;
using nlohmann::json;

namespace {

json read_json(const std::string& path) {
  return json::parse(read_whole_file(path));
}

}  // namespace

TEST_CASE("a tiny model tells spam: F1 of the rare class is above 0.93 on messages not seen") {
  const TemporaryFolder folder;
  const std::string split = MINIM_EXAMPLES "/sms_spam/split " + folder.path();
  REQUIRE(std::system(split.c_str()) == 0);
  // 5,171 messages without repetitions, a fifth of them for the test.
  const auto train = lines_of(read_whole_file(folder / "train.tsv"));
  auto test = lines_of(read_whole_file(folder / "test.tsv"));
  CHECK(train.size() == 1 + 4137);
  CHECK(test.size() == 1 + 1034);
  for (size_t i = 1; i < test.size(); ++i)
    CHECK(std::ranges::find(train, test[i]) == train.end());
  succeed({"train", "--preset", "tiny", "--train-file", folder / "train.tsv", "--validation-file",
           folder / "test.tsv", "--learning-rate", "1e-3", "--warmup-ratio", "0.1",
           "--per-device-train-batch-size", "32", "--num-train-epochs", "2", "--max-seq-length",
           "64", "--output-dir", folder / "model"});
  // Of two classes, F1 is that of the second: spam, which comes after ham.
  CHECK(read_json(folder / "model/eval_results.json")["eval_f1"] >= 0.93);
}

TEST_CASE("class weights are given by name or found, and a resumed run must have them") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv",
                   questions(16) + "one more,lost_card\nand more,lost_card\n");
  const Arguments train = train_arguments(folder / "train.csv", folder / "run");
  const Arguments saves = {"--save-strategy", "steps", "--save-steps", "1"};
  succeed(train + saves + Arguments{"--class-weights", "balanced"});
  // 18 rows: 8 of exchange_rate and 10 of lost_card.
  CHECK(read_json(folder / "run/training_args.json")["class_weights"] ==
        json({18.0 / 16, 18.0 / 20}));
  const std::string weights = read_whole_file(folder / "run/model.safetensors");
  const Arguments resumes = {"--resume-from-checkpoint", folder / "run/checkpoint-1"};
  succeed(train + saves + resumes + Arguments{"--class-weights", "balanced"});
  CHECK(read_whole_file(folder / "run/model.safetensors") == weights);
  CHECK(contains(failure_of(train + saves + resumes), "class_weights is null instead of [1.125,"));
  CHECK(failure_of(train + Arguments{"--overwrite-output-dir", "--class-weights", "lost_crd=2"}) ==
        "class_weights: there is no class \"lost_crd\"; did you mean 'lost_card'?");
  CHECK(contains(failure_of(train + Arguments{"--class-weights", "balanced",
                                              "--train-sampling-strategy", "weighted"},
                            2),
                 "evens out the classes already"));
}

TEST_CASE("a weighted order goes on after resuming as it would have") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(16));
  const Arguments train =
      train_arguments(folder / "train.csv", folder / "run") + Arguments{"--train-sampling-strategy",
                                                                        "weighted",
                                                                        "--save-strategy",
                                                                        "steps",
                                                                        "--save-steps",
                                                                        "1",
                                                                        "--max-steps",
                                                                        "3"};
  succeed(train);
  const std::string weights = read_whole_file(folder / "run/model.safetensors");
  succeed(train + Arguments{"--resume-from-checkpoint", folder / "run/checkpoint-1"});
  CHECK(read_whole_file(folder / "run/model.safetensors") == weights);
}

TEST_CASE("a run may take the first rows alone, of a file that is shuffled before") {
  const TemporaryFolder folder;
  write_whole_file(folder / "data.csv", questions(32));
  const Arguments train = train_arguments(folder / "data.csv", folder / "run") +
                          Arguments{"--validation-file",     folder / "data.csv",
                                    "--max-train-samples",   "10",
                                    "--max-eval-samples",    "4",
                                    "--overwrite-output-dir"};
  const std::string first = succeed(train).output;
  CHECK(contains(first, "data.csv: 10 rows"));
  CHECK(contains(first, "data.csv: 4 rows"));
  const std::string weights = read_whole_file(folder / "run/model.safetensors");
  succeed(train + Arguments{"--shuffle-train-dataset"});
  CHECK(read_whole_file(folder / "run/model.safetensors") != weights);
}
