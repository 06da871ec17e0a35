#include <cstdlib>
#include <sys/resource.h>

#include "tests/classifier/program.h"

// Tokens that are kept between runs, and files that do not fit into memory.
using namespace minim;
using namespace minim::test;

namespace {

// MiB that the program had resident when it had most; it has to succeed.
double peak_of(const Arguments& arguments) {
  const TemporaryFolder folder;
  // One thread: others would only wait for each other where the machine is busy.
  const pid_t child =
      start_classifier(arguments, folder, "", [] { ::setenv("OMP_NUM_THREADS", "1", 1); });
  int status = 0;
  rusage usage = {};
  REQUIRE(::wait4(child, &status, 0, &usage) == child);
  CAPTURE(read_whole_file(folder / "err"));
  REQUIRE(status == 0);
  return double(usage.ru_maxrss) / 1024;
}

// 20 MiB in rows of 4 KiB; files from 16 MiB on are mapped.
std::string large_file() {
  std::string csv = "text,label\n", text;
  while (text.size() < 4096)
    text += "what is the exchange rate for my lost card ";
  for (int row = 0; csv.size() < size_t(20) << 20; ++row)
    csv += text + (row % 2 == 0 ? ",lost_card\n" : ",exchange_rate\n");
  return csv;
}

}  // namespace

TEST_CASE("a run whose tokens are cached has the bits of one in memory, and resumes with them") {
  const TemporaryFolder folder;
  write_whole_file(folder / "train.csv", questions(30));
  write_whole_file(folder / "test.csv", questions(6));
  const auto train = [&](const std::string& name) {
    return train_arguments(folder / "train.csv", folder / name) +
           Arguments{"--validation-file",
                     folder / "test.csv",
                     "--max-steps",
                     "4",
                     "--per-device-train-batch-size",
                     "4",
                     "--gradient-accumulation-steps",
                     "2",
                     "--train-sampling-strategy",
                     "group_by_length",
                     "--shuffle-train-dataset",
                     "--max-train-samples",
                     "26",
                     "--report-to",
                     "html"};
  };
  const Arguments cache = {"--cache-dir", folder / "cache"};
  const auto weights = [&](const std::string& name) {
    return read_whole_file(folder / (name + "/model.safetensors"));
  };
  succeed(train("memory"));
  const Arguments saves = {"--save-strategy", "steps", "--save-steps", "2"};
  const std::string first = succeed(train("cached") + cache + saves).output;
  CHECK(contains(first, "train.csv: tokens are kept in " + folder / "cache/train-"));
  CHECK(contains(first, "train.csv: 26 rows"));
  CHECK(weights("cached") == weights("memory"));
  CHECK(read_whole_file(folder / "cached/vocab.txt") ==
        read_whole_file(folder / "memory/vocab.txt"));

  const std::string resumed =
      succeed(train("cached") + cache + saves +
              Arguments{"--resume-from-checkpoint", folder / "cached/checkpoint-2"})
          .output;
  CHECK(contains(resumed, "train.csv: tokens are taken from " + folder / "cache/train-"));
  CHECK(contains(resumed, "test.csv: tokens are taken from " + folder / "cache/test-"));
  CHECK(weights("cached") == weights("memory"));
  CHECK(contains(failure_of(train("other") + Arguments{"--overwrite-cache"}, 2), "--cache-dir"));
}

TEST_CASE("training on a file and predicting it take memory that does not grow with it") {
  const TemporaryFolder folder;
  write_whole_file(folder / "small.csv", questions(6));
  write_whole_file(folder / "large.csv", large_file());
  const auto train = [&](const std::string& file) {
    return Arguments{"train",
                     "--model-name-or-path",
                     trained_model(),
                     "--train-file",
                     folder / file,
                     "--max-steps",
                     "1",
                     "--max-seq-length",
                     "8",
                     "--output-dir",
                     folder / "model",
                     "--report-to",
                     "none",
                     "--overwrite-output-dir"};
  };
  const auto predict = [&](const std::string& file) {
    return Arguments{"predict",
                     "--model-name-or-path",
                     trained_model(),
                     "--predict-file",
                     folder / file,
                     "--max-seq-length",
                     "8",
                     "--per-device-eval-batch-size",
                     "4"};  // and parts of 128 rows
  };
  const Arguments cache = {"--cache-dir", folder / "cache"};
  // Windows of 4 MiB, buffers, and 12 bytes and more for each of 5,000 rows; never the file.
  const double most = 12, file = 20;
  const double small = peak_of(train("small.csv"));
  CHECK(peak_of(train("large.csv")) > small + file);
  CHECK(peak_of(train("large.csv") + cache) < small + most);
  CHECK(peak_of(train("large.csv") + cache) < small + most);  // with tokens that are there
  CHECK(peak_of(predict("large.csv")) < peak_of(predict("small.csv")) + most);
}
