// Makes a paraphrase task of a data set with intents: two texts are paraphrases where they have the
// same one. Prints how far counting common words gets.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <span>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "text/dataset.h"
#include "text/sampler.h"

using namespace minim;
using nlohmann::json;

namespace {

using Words = std::set<std::string>;

struct Question {
  std::string text, intent;
  Words words;
};

// Runs of letters and digits, in lower case.
Words words_of(const std::string& text) {
  Words words;
  std::string word;
  for (const char c : text + " ") {
    const auto lower = char(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    if ((lower >= 'a' && lower <= 'z') || (lower >= '0' && lower <= '9')) {
      word += lower;
    } else if (!word.empty()) {
      words.insert(std::exchange(word, ""));
    }
  }
  return words;
}

// Common words over all words of the two.
double overlap(const Words& a, const Words& b) {
  const auto common = std::ranges::count_if(a, [&](const auto& word) { return b.contains(word); });
  return double(common) / double(std::max<size_t>(a.size() + b.size() - size_t(common), 1));
}

struct Pair {
  Pair(const Question& first, const Question& second)
      : first(&first),
        second(&second),
        is_same(first.intent == second.intent),
        overlap(::overlap(first.words, second.words)) {}

  const Question* first;
  const Question* second;
  bool is_same;
  double overlap;
};

// Questions of every n-th intent, in the order of their names.
std::vector<Question> read_questions(const std::string& path, int64_t every) {
  const text::Dataset data = text::read_dataset(path);
  std::map<std::string, int64_t> places;
  for (const text::Row& row : data.rows)
    places.emplace(*row.label, 0);
  int64_t place = 0;
  for (auto& entry : places)
    entry.second = place++;
  std::vector<Question> questions;
  for (const text::Row& row : data.rows)
    if (places[*row.label] % every == 0)
      questions.push_back({row.text, *row.label, words_of(row.text)});
  return questions;
}

// For each question as many pairs with the same intent as with another. Of the latter, every second
// is hard: of twenty random ones it is the one with the most words in common.
std::vector<Pair> make_pairs(std::span<const Question> questions, int64_t per_question,
                             uint64_t seed) {
  // All questions in a random order, which each starts to search at another place.
  const std::vector<int64_t> order = text::randperm(int64_t(questions.size()), seed);
  size_t at = 0;
  const auto next = [&](const Question& other, bool same) -> const Question& {
    for (size_t tries = 0; tries < questions.size(); ++tries) {
      const Question& found = questions[size_t(order[at++ % order.size()])];
      if (&found != &other && (found.intent == other.intent) == same) return found;
    }
    fail("pairs: there must be two intents, and two questions of each; {} has not", other.intent);
  };
  std::vector<Pair> pairs;
  for (const Question& question : questions) {
    for (int64_t i = 0; i < per_question; ++i) {
      pairs.emplace_back(question, next(question, true));
      const bool is_hard = (pairs.size() / 2) % 2 == 1;
      Pair different(question, next(question, false));
      for (int candidate = 1; is_hard && candidate < 20; ++candidate) {
        const Pair other(question, next(question, false));
        if (other.overlap > different.overlap) different = other;
      }
      pairs.push_back(different);
    }
  }
  std::vector<Pair> shuffled;
  for (const int64_t i : text::randperm(int64_t(pairs.size()), seed + 1))
    shuffled.push_back(pairs[size_t(i)]);
  return shuffled;
}

struct Score {
  double accuracy = 0, f1 = 0;
};

// Of "the same, from that overlap on".
Score score_of(std::span<const Pair> pairs, double threshold) {
  double right = 0, hits = 0, positives = 0;
  for (const Pair& pair : pairs) {
    const bool answer = pair.overlap >= threshold;
    right += answer == pair.is_same;
    hits += answer && pair.is_same;
    positives += double(answer) + double(pair.is_same);
  }
  return {right / double(pairs.size()), positives > 0 ? 2 * hits / positives : 0};
}

// Pairs whose label is whether they are the same, and the same pairs with a list of their intents.
void write(const std::string& folder, const std::string& name, std::span<const Pair> pairs) {
  std::string same, intents;
  for (const Pair& pair : pairs) {
    json row = {{"sentence1", pair.first->text}, {"sentence2", pair.second->text}};
    row["label"] = pair.is_same ? "same" : "different";
    same += row.dump() + "\n";
    row["label"] = std::set<std::string>{pair.first->intent, pair.second->intent};
    intents += row.dump() + "\n";
  }
  write_whole_file(fmt::format("{}/{}.jsonl", folder, name), same);
  write_whole_file(fmt::format("{}/{}_intents.jsonl", folder, name), intents);
}

void run(const std::string& train_file, const std::string& test_file, const std::string& folder,
         int64_t every) {
  const std::vector<Question> train = read_questions(train_file, every);
  const std::vector<Question> test = read_questions(test_file, every);
  const std::vector<Pair> train_pairs = make_pairs(train, 2, 1),
                          test_pairs = make_pairs(test, 1, 2);
  write(folder, "train", train_pairs);
  write(folder, "test", test_pairs);
  double best = 0;
  for (int percent = 1; percent <= 100; ++percent)
    if (score_of(train_pairs, percent / 100.0).accuracy > score_of(train_pairs, best).accuracy)
      best = percent / 100.0;
  const Score score = score_of(test_pairs, best);
  fmt::print("{} pairs to train on, {} to test on\n", train_pairs.size(), test_pairs.size());
  fmt::print("word overlap from {:.2f} on: accuracy {:.3f}, F1 {:.3f}\n", best, score.accuracy,
             score.f1);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Makes pairs of questions, each with the same intent or another");
  std::array<std::string, 3> paths;
  int64_t every = 4;
  app.add_option("train-file", paths[0], "Data with intents to train on")->required();
  app.add_option("test-file", paths[1], "Data with intents to test on")->required();
  app.add_option("output-dir", paths[2], "Folder that is there")->required();
  app.add_option("--every", every, "Take every n-th intent")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    run(paths[0], paths[1], paths[2], every);
  } catch (const Error& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
}
