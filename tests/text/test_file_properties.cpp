// What holds for every file, checked on random ones.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "text/labels.h"

using namespace minim;
using namespace minim::text;

namespace {

using Table = std::vector<std::vector<std::string>>;  // text, label per row

// Fields of the characters that formats give a meaning to.
Table random_table(std::mt19937& random) {
  const std::vector<std::string> pieces = {"a",  "b",      " ",          ",",  "\"", "\"\"",
                                           "\n", "\r\n",   "\r",         "\t", "\\", "{",
                                           "]",  "\u00E9", "\U0001F600", ";"};
  const auto field = [&](size_t least) {
    std::string text;
    for (size_t n = least + random() % 8; n > 0; --n)
      text += pieces[random() % pieces.size()];
    return text;
  };
  Table table;
  for (size_t rows = 1 + random() % 6; rows > 0; --rows)
    table.push_back({field(0), field(1)});
  return table;
}

std::string quoted(const std::string& field) {
  std::string text = "\"";
  for (const char c : field)
    text += c == '"' ? "\"\"" : std::string(1, c);
  return text + "\"";
}

Table table_of(const Dataset& data) {
  Table table;
  for (const Row& row : data.rows)
    table.push_back({row.text, row.label.value_or("")});
  return table;
}

}  // namespace

TEST_CASE("any text written as CSV or JSON is read back as it was") {
  std::mt19937 random(7);
  const std::string ends[] = {"\n", "\r\n", "\r"};
  for (int round = 0; round < 2000; ++round) {
    const Table table = random_table(random);
    const std::string end = ends[random() % 3];
    std::string csv = (random() % 2 ? "\xEF\xBB\xBF" : "") + std::string("text,label") + end;
    std::string lines;
    nlohmann::json array = nlohmann::json::array();
    for (const auto& row : table) {
      if (random() % 4 == 0) csv += end;  // blank lines
      csv += quoted(row[0]) + "," + quoted(row[1]) + end;
      array.push_back({{"text", row[0]}, {"label", row[1]}});
      lines += array.back().dump() + end;
    }
    REQUIRE(table_of(parse_dataset("a.csv", csv)) == table);
    REQUIRE(table_of(parse_dataset("a.jsonl", lines)) == table);
    REQUIRE(table_of(parse_dataset("a.json", array.dump())) == table);
    REQUIRE(table_of(parse_dataset("a.json", array.dump(2))) == table);
  }
}

TEST_CASE("a damaged file is read or refused with an error that names it, never more") {
  std::mt19937 random(3);
  using namespace std::string_literals;
  const std::string special = "\",\n\r\t{}[]:\\\0\xFF\xE2"s + "a1";
  for (const auto& entry : std::filesystem::directory_iterator(MINIM_TEST_DATA "/datasets/files")) {
    if (entry.file_size() > 1000) continue;
    std::ifstream stream(entry.path(), std::ios::binary);
    const std::string whole{std::istreambuf_iterator<char>(stream), {}};
    for (int round = 0; round < 30; ++round) {
      std::string bytes = whole;
      for (size_t n = 1 + random() % 3; n > 0 && !bytes.empty(); --n) {
        const size_t at = random() % bytes.size();
        switch (random() % 3) {
          case 0:
            bytes[at] = special[random() % special.size()];
            break;
          case 1:
            bytes.resize(at);
            break;
          default:
            bytes.insert(at, 1, special[random() % special.size()]);
        }
      }
      for (const char* name : {"a.csv", "a.tsv", "a.jsonl", "a.txt"}) {
        DatasetOptions options{.role = Role(random() % 3)};
        options.replace_invalid_utf8 = random() % 4 == 0;
        try {
          Dataset data = parse_dataset(name, bytes, options);
          CHECK_FALSE(data.rows.empty());
          collect_labels(data, LabelOrder::numeric, data.warnings);
        } catch (const Error& error) {
          CHECK_MESSAGE(std::string(error.what()).starts_with(name), error.what());
        }
      }
    }
  }
}

// The numbers that the set's authors publish, and its records with line ends inside quotes.
TEST_CASE("banking77 has 10,003 and 3,080 rows of 77 classes") {
  const std::string folder = MINIM_TEST_DATA "/../../examples/banking77/";
  Dataset train = read_dataset(folder + "train.csv");
  const Dataset test = read_dataset(folder + "test.csv", {.role = Role::evaluate});
  const LabelSet labels = collect_labels(train, LabelOrder::numeric, train.warnings);
  CHECK(train.text_columns == std::vector<std::string>{"text"});
  CHECK(train.label_column == "category");
  CHECK(train.rows.size() == 10003);
  CHECK(test.rows.size() == 3080);
  CHECK(labels.size() == 77);
  CHECK(train.warnings.empty());
  std::vector<int> per_class(77);
  for (int64_t id : label_ids(test, labels))
    ++per_class[size_t(id)];
  CHECK(per_class == std::vector<int>(77, 40));
  const auto broken = [](const Row& row) { return row.text.find('\n') != row.text.npos; };
  CHECK(std::ranges::count_if(train.rows, broken) == 10);
  CHECK(std::ranges::count_if(test.rows, broken) == 3);
}
