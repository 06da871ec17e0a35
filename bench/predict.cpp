// How fast `classifier predict` answers: seconds from its start to the first answer, and texts per
// second of a file, for untrained models of tiny and base size on the texts of banking77. Where
// MINIM_PYTHON names a Python with transformers, its answers to the same texts are timed in
// between, round by round.   usage: bench_predict CLASSIFIER [PRESET]

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "bench/timing.h"
#include "core/error.h"
#include "core/parallel.h"
#include "models/distilbert.h"
#include "text/dataset.h"
#include "text/labels.h"
#include "text/tokenizer_files.h"
#include "text/wordpiece_trainer.h"

using namespace minim;
using bench::median;
using bench::now;

namespace {

constexpr int rounds = 3;
const std::string data = std::string(MINIM_SOURCE_ROOT) + "/examples/banking77/";

// A model folder with random weights and a vocabulary of the training texts.
void save_model(const std::string& preset, const std::string& folder) {
  const text::Dataset texts = text::read_dataset(data + "train.csv");
  std::vector<std::string> notes;
  const text::LabelSet labels = text::collect_labels(texts, text::LabelOrder::numeric, notes);
  text::WordPieceTrainer pieces({.vocab_size = 4000, .normalizer = {.lowercase = true}});
  for (const text::Row& row : texts.rows)
    pieces.add(row.text);
  const text::Tokenizer tokenizer(text::TokenizerConfig::bert(pieces.train(), true));
  models::DistilBertConfig config = models::DistilBertConfig::preset(preset);
  config.labels = labels.names();
  config.problem_type = "single_label_classification";
  models::DistilBertForSequenceClassification(config).save_pretrained(folder);
  text::save_tokenizer(tokenizer, folder);
}

double seconds_of(const std::string& command) {
  const double start = now();
  check(std::system(command.c_str()) == 0, "this failed: {}", command);
  return now() - start;
}

// What Python says: seconds to the first answer, the imports of its libraries included, and of the
// texts after that; zeros where there is none.
std::array<double, 2> peer_seconds(const std::string& python, const std::string& model,
                                   int64_t texts) {
  const std::string command =
      fmt::format("{} {}/bench/predict_peer.py {} {}test.csv {} {} 2>/dev/null", python,
                  MINIM_SOURCE_ROOT, model, data, texts, thread_count());
  std::array<double, 2> seconds = {};
  const double start = now();
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return seconds;
  std::array<char, 64> line{};
  if (std::fgets(line.data(), int(line.size()), pipe) != nullptr) {
    seconds[0] = now() - start;  // the first answer has come
    if (std::fscanf(pipe, "%lf", &seconds[1]) != 1) seconds = {};
  }
  pclose(pipe);
  return seconds;
}

void measure(const std::string& classifier, const std::string& preset, int64_t texts) {
  const char* python = std::getenv("MINIM_PYTHON");
  const std::string folder =
      std::filesystem::temp_directory_path() / fmt::format("minim-bench-{}", ::getpid());
  save_model(preset, folder);
  const std::string predict =
      fmt::format("{} predict --model-name-or-path {} ", classifier, folder);
  const auto of_file = [&](int64_t rows) {
    return seconds_of(fmt::format(
        "{} --predict-file {}test.csv --max-predict-samples {} >/dev/null", predict, data, rows));
  };
  std::vector<double> first, all, peer_first, peer_all;
  for (int round = -1; round < rounds; ++round) {
    const double one = seconds_of(predict + "--text 'I lost my card' >/dev/null");
    const double file = of_file(texts) - of_file(1);
    const auto peer =
        python == nullptr ? std::array<double, 2>{} : peer_seconds(python, folder, texts);
    if (round < 0) continue;  // warm-up
    first.push_back(one);
    all.push_back(file);
    peer_first.push_back(peer[0]);
    peer_all.push_back(peer[1]);
  }
  std::filesystem::remove_all(folder);
  fmt::print("{:5} first answer after {:7.3f} s, {:8.0f} texts per second", preset, median(first),
             double(texts) / median(all));
  if (median(peer_all) > 0)
    fmt::print("; Python {:7.3f} s ({:.0f} times), {:8.0f} texts per second (1/{:.2f})",
               median(peer_first), median(peer_first) / median(first),
               double(texts) / median(peer_all), median(peer_all) / median(all));
  fmt::print("\n");
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** values) {
  if (count < 2) {
    fmt::print(stderr, "usage: {} build/examples/classifier/classifier [PRESET]\n", values[0]);
    return 2;
  }
  fmt::print("{} threads, medians of {}\n", thread_count(), rounds);
  for (const auto& [preset, texts] : {std::pair("tiny", 3080), std::pair("base", 256)})
    if (count == 2 || std::string(values[2]) == preset) measure(values[1], preset, texts);
  if (std::getenv("MINIM_PYTHON") == nullptr)
    fmt::print("nothing to compare with: set MINIM_PYTHON to a Python that has transformers\n");
  return 0;
}
