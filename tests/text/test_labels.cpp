#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "text/label_names.h"
#include "text/labels.h"

using namespace minim;
using namespace minim::text;
using Names = std::vector<std::string>;
using Ids = std::vector<int64_t>;

namespace {

// Rows "x,LABEL" from line 2 on.
Dataset data_of(const Names& labels, Role role = Role::train) {
  std::string bytes = "text,label\n";
  for (const std::string& label : labels)
    bytes += "x," + label + "\n";
  return parse_dataset(role == Role::train ? "train.csv" : "dev.csv", bytes, {.role = role});
}

LabelSet classes_of(const Names& labels, LabelOrder order = LabelOrder::numeric) {
  Names warnings;
  return collect_labels(data_of(labels), order, warnings);
}

Names warnings_of(const Names& labels) {
  Names warnings;
  collect_labels(data_of(labels), LabelOrder::numeric, warnings);
  return warnings;
}

}  // namespace

TEST_CASE("integers sort by value, anything else by code point") {
  CHECK(classes_of({"10", "9", "2", "-1", "-12", "0"}).names() ==
        Names{"-12", "-1", "0", "2", "9", "10"});
  CHECK(classes_of({"10", "9", "x"}).names() == Names{"10", "9", "x"});
  CHECK(classes_of({"10", "9", "2"}, LabelOrder::code_point).names() == Names{"10", "2", "9"});
  // U+FFFD sorts before U+1F600, though its UTF-16 code unit is larger.
  CHECK(classes_of({"\U0001F600", "\uFFFD", "z"}).names() == Names{"z", "\uFFFD", "\U0001F600"});
  // More digits than any machine integer.
  CHECK(classes_of({"100000000000000000000", "99999999999999999999"}).names() ==
        Names{"99999999999999999999", "100000000000000000000"});
}

TEST_CASE("one number written in two ways is an error") {
  CHECK_THROWS_WITH_AS(classes_of({"1", "2", "01"}),
                       "train.csv: line 2, field 2: labels '01' and '1' are the same number, must "
                       "be written in one way",
                       Error);
  CHECK_THROWS_WITH_AS(classes_of({"0", "2.0"}),
                       "train.csv: line 3, field 2: label '2.0' among integer labels, must be "
                       "written as '2'",
                       Error);
  CHECK_THROWS_WITH_AS(classes_of({"0.5", "0.50"}),
                       "train.csv: line 3, field 2: labels '0.5' and '0.50' are the same number, "
                       "must be written in one way",
                       Error);
  CHECK(classes_of({"007", "12"}).names() == Names{"007", "12"});
  CHECK(classes_of({"1", "1.5", "2"}).names() == Names{"1", "1.5", "2"});
}

TEST_CASE("a number has one canonical spelling") {
  CHECK(canonical_number("+01.50") == "1.5");
  CHECK(canonical_number("-0.0") == "0");
  CHECK(canonical_number("000") == "0");
  CHECK(canonical_number("7.") == "7");
  for (const char* text : {"", "-", ".5", "1e3", "1.2.3", "one", " 1"}) {
    CHECK_FALSE(canonical_number(text).has_value());
  }
}

TEST_CASE("a single class is an error") {
  CHECK_THROWS_WITH_AS(classes_of({"a", "a", "a"}),
                       "train.csv: only one class ('a', 3 rows), must be at least two", Error);
}

TEST_CASE("labels that a reader takes for one are warned about") {
  CHECK(warnings_of({"pos", " pos", "neg", "Pos"}) ==
        Names{"train.csv: labels ' pos', 'Pos', 'pos' differ only by case or spaces"});
  CHECK(warnings_of({"caf\u00E9", "cafe\u0301"}) ==
        Names{"train.csv: two labels look alike: 'cafe\u0301', 'caf\u00E9' (they differ in Unicode "
              "normalization)"});
  CHECK(warnings_of({"pos", "neg"}).empty());
}

TEST_CASE("labels unseen in training are listed with lines and counts, or skipped on request") {
  const LabelSet labels = classes_of({"good", "bad"});
  Dataset dev = data_of({"bad", "Good", "meh", "good", "meh"}, Role::evaluate);
  CHECK_THROWS_WITH_AS(label_ids(dev, labels),
                       "dev.csv: line 3, field 2: label 'Good' does not occur in the training file "
                       "(1 row); nor does 'meh' (line 4, 2 rows); did you mean 'good'?; skip such "
                       "rows with --skip-unseen-labels",
                       Error);
  skip_unseen_labels(dev, labels);
  CHECK(label_ids(dev, labels) == Ids{0, 1});
  CHECK(dev.warnings == Names{"dev.csv: 3 rows skipped, their labels do not occur in the training "
                              "file (first in line 3)"});
  Dataset other = data_of({"meh"}, Role::evaluate);
  CHECK_THROWS_WITH_AS(skip_unseen_labels(other, labels),
                       "dev.csv: no row has a label of the training file", Error);
}

TEST_CASE("a prediction file may have labels, -1 and empty ones mean none") {
  const Dataset data = data_of({"1", "-1", "", "0"}, Role::predict);
  CHECK(label_ids(data, LabelSet({"0", "1"})) == Ids{1, -1, -1, 0});
  CHECK(label_ids(data, LabelSet({"-1", "0", "1"})) == Ids{2, 0, -1, 1});
}

TEST_CASE("a checkpoint with the same class names keeps its order") {
  const LabelSet data = classes_of({"contradiction", "entailment", "neutral"});
  Names warnings;
  const Names order = {"entailment", "neutral", "contradiction"};
  CHECK(keep_checkpoint_order(data, order, warnings).names() == order);
  CHECK(keep_checkpoint_order(data, {}, warnings) == data);
  CHECK(warnings.empty());
  CHECK(keep_checkpoint_order(data, {"LABEL_0", "LABEL_1", "LABEL_2"}, warnings) == data);
  CHECK(keep_checkpoint_order(data, {"spam", "ham"}, warnings) == data);
  CHECK(warnings ==
        Names{"checkpoint: its 3 classes have no names; if it was trained on this task, "
              "check that its order is 'contradiction' for id 0 and so on",
              "checkpoint: its classes ('spam', ...; 2 in all) are not those of the data "
              "('contradiction', ...; 3 in all); the data's are used"});
}

TEST_CASE("regression takes numbers and names the row that holds none") {
  CHECK(regression_targets(data_of({"0.5", "-2", "+1e-3"})) ==
        std::vector<float>{0.5f, -2.f, 0.001f});
  for (const char* bad : {"high", "nan", "inf", "1e99", "+-1", "1 "}) {
    CHECK_THROWS_WITH_AS(regression_targets(data_of({"1", bad})),
                         ("train.csv: line 3, field 2: label '" + std::string(bad) +
                          "' is not a finite number, must be one for regression")
                             .c_str(),
                         Error);
  }
}

TEST_CASE("lists of labels become one 0 or 1 per class") {
  const auto parse = [](const std::string& lines) {
    return parse_dataset("a.jsonl", lines, {.multi_label = true});
  };
  Names warnings;
  const Dataset data = parse(
      "{\"text\": \"a\", \"label\": [\"y\", \"x\"]}\n{\"text\": \"b\", \"label\": []}\n"
      "{\"text\": \"c\", \"label\": [\"x\"]}");
  const LabelSet labels = collect_labels(data, LabelOrder::numeric, warnings);
  CHECK(labels.names() == Names{"x", "y"});
  CHECK(multi_label_targets(data, labels) == std::vector<float>{1, 1, 0, 0, 1, 0});
  CHECK_THROWS_WITH_AS(parse("{\"text\": \"a\", \"label\": \"x\"}"),
                       "a.jsonl: line 1: label is a string, must be a list of strings", Error);
  CHECK_THROWS_WITH_AS(parse("{\"text\": \"a\", \"label\": [null]}"),
                       "a.jsonl: line 1: label is a list, must be a list of strings", Error);
}
