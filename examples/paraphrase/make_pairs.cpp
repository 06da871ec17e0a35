// Makes a two-sentence task of banking77: do two questions ask for the same thing?
//
//   make_pairs FOLDER_OF_BANKING77 OUTPUT_FOLDER
//
// Each question is paired with questions of its own intent and with as many of others. The pairs to
// train on are made of train.csv alone, those to test on of test.csv alone, and a question that
// occurs in both is left out of training, so that no question is on both sides.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "core/file.h"
#include "text/dataset.h"

using namespace minim;

namespace {

using Texts = std::vector<std::string>;
using Intents = std::map<std::string, Texts>;

// Copies that differ in case or in blanks alone are one question.
std::string folded(const std::string& text) {
  std::string letters;
  for (const char c : text)
    if (c != ' ' && c != '\n') letters += c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
  return letters;
}

// The questions of a file by intent, without those that were seen before.
Intents read_questions(const std::string& path, std::set<std::string>& seen) {
  Intents intents;
  for (const text::Row& row : text::read_dataset(path).rows)
    if (seen.insert(folded(row.text)).second) intents[*row.label].push_back(row.text);
  return intents;
}

std::string quoted(const std::string& text) {
  std::string field = "\"";
  for (const char c : text)
    field += c == '"' ? "\"\"" : std::string(1, c);
  return field + "\"";
}

// `each` pairs of either kind for every question. Numbers are drawn by remainder: the standard
// library's distributions differ from one to another, and the files should not.
int64_t write_pairs(const std::string& path, const Intents& intents, int each, uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return size_t(random()) % n; };
  std::vector<const Texts*> groups;
  for (const auto& [intent, texts] : intents)
    groups.push_back(&texts);
  check(groups.size() > 1, "{}: needs two intents or more", path);
  std::string csv = "text,text_pair,label\n";
  int64_t rows = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const Texts& own = *groups[g];
    for (size_t i = 0; i < own.size() && own.size() > 1; ++i)
      for (int k = 0; k < each; ++k, rows += 2) {
        const size_t same = (i + 1 + below(own.size() - 1)) % own.size();
        const Texts& others = *groups[(g + 1 + below(groups.size() - 1)) % groups.size()];
        const std::string& other = others[below(others.size())];
        csv += fmt::format("{},{},same\n", quoted(own[i]), quoted(own[same]));
        csv += fmt::format("{},{},different\n", quoted(own[i]), quoted(other));
      }
  }
  write_whole_file(path, csv);
  return rows;
}

}  // namespace

int main(int count, char** values) {
  if (count != 3) {
    fmt::print(stderr, "usage: make_pairs FOLDER_OF_BANKING77 OUTPUT_FOLDER\n");
    return 2;
  }
  try {
    const std::string from = values[1], to = values[2];
    std::filesystem::create_directories(to);
    std::set<std::string> seen;
    const Intents test = read_questions(from + "/test.csv", seen);
    const Intents train = read_questions(from + "/train.csv", seen);
    fmt::print("train.csv: {} pairs\n", write_pairs(to + "/train.csv", train, 4, 1));
    fmt::print("test.csv: {} pairs\n", write_pairs(to + "/test.csv", test, 1, 2));
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
