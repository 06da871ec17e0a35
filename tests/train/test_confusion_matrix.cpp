#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "train/confusion_matrix.h"

using namespace minim;
using namespace minim::train;
using Ints = std::vector<int64_t>;

namespace {

// Sums of the same fractions in another order differ in the last digits alone.
constexpr double tolerance = 1e-12;

struct RandomRows {
  Ints labels, predicted;
};

RandomRows random_rows(std::mt19937& random, int64_t rows, int64_t classes) {
  RandomRows r;
  for (int64_t i = 0; i < rows; ++i) {
    r.labels.push_back(int64_t(random() % uint64_t(classes)));
    r.predicted.push_back(random() % 3 ? r.labels.back() : int64_t(random() % uint64_t(classes)));
  }
  return r;
}

ConfusionMatrix matrix_of(const RandomRows& r, int64_t classes) {
  ConfusionMatrix matrix(classes);
  for (size_t i = 0; i < r.labels.size(); ++i)
    matrix.add(r.labels[i], r.predicted[i]);
  return matrix;
}

bool same_counts(const ConfusionMatrix& a, const ConfusionMatrix& b) {
  for (int64_t i = 0; i < a.classes(); ++i) {
    for (int64_t j = 0; j < a.classes(); ++j) {
      if (a.count(i, j) != b.count(i, j)) return false;
    }
  }
  return a.classes() == b.classes();
}

}  // namespace

TEST_CASE("a score that is 0 / 0 comes with a warning") {
  using Warnings = std::vector<std::string>;
  ConfusionMatrix matrix(3);
  matrix.add(0, 0);
  matrix.add(1, 0);
  CHECK(matrix.scores(Average::macro).warnings ==
        Warnings{"precision: 2 of 3 classes are never predicted, so their values are set to 0",
                 "recall: class 2 has no rows, so its value is set to 0",
                 "f1: class 2 has neither rows nor predictions, so its value is set to 0"});
  CHECK(matrix.scores(Average::macro_present).warnings ==
        Warnings{"precision: class 1 is never predicted, so its value is set to 0"});
  // Classes without rows have no weight.
  CHECK(matrix.scores(Average::weighted).warnings ==
        Warnings{"precision: class 1 is never predicted, so its value is set to 0"});
  CHECK(matrix.scores(Average::micro).warnings.empty());

  ConfusionMatrix negatives(2);
  negatives.add(0, 0);
  CHECK(negatives.scores(Average::binary).warnings.size() == 3);
  negatives.add(1, 1);
  CHECK(negatives.scores(Average::binary).warnings.empty());

  const std::vector<ClassCounts> nothing(2);
  CHECK(average_scores(nothing, Average::weighted).warnings ==
        Warnings{"precision, recall, f1: no class has rows, so they are set to 0"});
  CHECK(average_scores(nothing, Average::micro).warnings.size() == 3);
}

TEST_CASE("micro scores are the accuracy, macro the mean over classes") {
  std::mt19937 random(7);
  for (int64_t classes : {2, 3, 5, 20}) {
    const ConfusionMatrix matrix = matrix_of(random_rows(random, 60, classes), classes);
    const Scores micro = matrix.scores(Average::micro), macro = matrix.scores(Average::macro);
    CHECK(micro.f1 == doctest::Approx(matrix.accuracy()).epsilon(tolerance));
    CHECK(micro.precision == matrix.accuracy());
    CHECK(micro.recall == matrix.accuracy());
    double f1 = 0, recall = 0, weighted_recall = 0;
    for (const ClassCounts& c : matrix.per_class()) {
      f1 += c.f1() / double(classes);
      recall += c.recall() / double(classes);
      weighted_recall += c.recall() * double(c.support()) / double(matrix.total());
    }
    CHECK(macro.f1 == doctest::Approx(f1).epsilon(tolerance));
    CHECK(macro.recall == doctest::Approx(recall).epsilon(tolerance));
    // The weights cancel the denominators: weighted recall is the accuracy.
    CHECK(weighted_recall == doctest::Approx(matrix.accuracy()).epsilon(tolerance));
  }
}

TEST_CASE("metrics depend neither on the order of the rows nor on the names of the classes") {
  std::mt19937 random(11);
  const int64_t classes = 6;
  const RandomRows rows = random_rows(random, 200, classes);
  const ConfusionMatrix matrix = matrix_of(rows, classes);

  std::vector<size_t> order(rows.labels.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::shuffle(order.begin(), order.end(), random);
  RandomRows shuffled;
  for (const size_t i : order) {
    shuffled.labels.push_back(rows.labels[i]);
    shuffled.predicted.push_back(rows.predicted[i]);
  }
  CHECK(same_counts(matrix_of(shuffled, classes), matrix));

  const Ints renaming = {3, 5, 0, 1, 4, 2};
  RandomRows renamed = rows;
  for (int64_t& label : renamed.labels)
    label = renaming[size_t(label)];
  for (int64_t& label : renamed.predicted)
    label = renaming[size_t(label)];
  const ConfusionMatrix other = matrix_of(renamed, classes);
  CHECK(other.accuracy() == matrix.accuracy());
  CHECK(other.mcc() == doctest::Approx(matrix.mcc()).epsilon(tolerance));
  for (const Average average : {Average::macro, Average::micro, Average::weighted}) {
    CHECK(other.scores(average).f1 ==
          doctest::Approx(matrix.scores(average).f1).epsilon(tolerance));
  }
}

TEST_CASE("adding batches gives the matrix of the whole set") {
  std::mt19937 random(13);
  const RandomRows rows = random_rows(random, 100, 4);
  ConfusionMatrix sum(4);
  for (size_t begin = 0, end; begin < 100; begin = end) {
    end = std::min<size_t>(100, begin + 1 + random() % 17);
    RandomRows batch;
    batch.labels.assign(rows.labels.begin() + long(begin), rows.labels.begin() + long(end));
    batch.predicted.assign(rows.predicted.begin() + long(begin),
                           rows.predicted.begin() + long(end));
    sum += matrix_of(batch, 4);
  }
  CHECK(same_counts(sum, matrix_of(rows, 4)));
}

TEST_CASE("counts beyond 32 bits keep their digits") {
  // Multiplying all counts by one number changes no metric; 4e9 does not fit 32 bits, and its
  // square does not fit 63.
  const int64_t scale = 4'000'000'000;
  ConfusionMatrix small(2), large(2);
  const int64_t counts[2][2] = {{115, 8}, {3, 74}};
  for (int64_t i = 0; i < 2; ++i) {
    for (int64_t j = 0; j < 2; ++j) {
      small.add(i, j, counts[i][j]);
      large.add(i, j, counts[i][j] * scale);
    }
  }
  CHECK(large.total() == 200 * scale);
  CHECK(large.mcc() == doctest::Approx(small.mcc()).epsilon(tolerance));
  CHECK(large.scores(Average::binary).f1 == small.scores(Average::binary).f1);
}

TEST_CASE("mcc keeps its digits where one class has nearly all rows") {
  // TP = 1, FP = 1, FN = 1, TN = N: (N - 1) / sqrt(2 * 2 * (N + 1)^2) = (N - 1) / (2 (N + 1)).
  ConfusionMatrix matrix(2);
  const int64_t n = 3'000'000'000;
  matrix.add(1, 1);
  matrix.add(0, 1);
  matrix.add(1, 0);
  matrix.add(0, 0, n);
  CHECK(matrix.mcc() == doctest::Approx(double(n - 1) / (2 * double(n + 1))).epsilon(tolerance));
}

TEST_CASE("an empty matrix has no metrics") {
  const ConfusionMatrix empty(3);
  CHECK_THROWS_WITH_AS(empty.accuracy(), "accuracy: no rows were counted, there must be at least 1",
                       Error);
  CHECK_THROWS_AS(empty.mcc(), Error);
  CHECK_THROWS_AS(empty.balanced_accuracy(), Error);
  CHECK_THROWS_AS(empty.scores(Average::macro), Error);
}

TEST_CASE("counts and names that do not fit are refused in one sentence") {
  ConfusionMatrix matrix(3);
  CHECK_THROWS_WITH_AS(matrix.add(3, 0), "confusion matrix: label 3 must lie in 0..2", Error);
  CHECK_THROWS_WITH_AS(matrix.add(0, -1), "confusion matrix: prediction -1 must lie in 0..2",
                       Error);
  CHECK_THROWS_WITH_AS(matrix += ConfusionMatrix(2),
                       "confusion matrix: 2 classes cannot be added to 3", Error);
  CHECK_THROWS_WITH_AS(ConfusionMatrix(0),
                       "confusion matrix: 0 classes given, there must be at least 1", Error);
  matrix.add(0, 0);
  CHECK_THROWS_WITH_AS(matrix.scores(Average::binary),
                       "scores: the binary average needs 2 classes, there are 3 (choose macro, "
                       "micro or weighted)",
                       Error);
  CHECK_THROWS_WITH_AS(
      average_named("samples"),
      "average: \"samples\" is not known, it must be binary, macro, macro_present, "
      "micro or weighted",
      Error);
  CHECK(average_named("weighted") == Average::weighted);
  CHECK_THROWS_WITH_AS(confusion_table(matrix, {"a", "b"}),
                       "confusion_table: 2 label names for 3 classes, there must be one each",
                       Error);
}

TEST_CASE("few classes make a table with recall and precision") {
  ConfusionMatrix matrix(3);
  matrix.add(0, 0, 115);
  matrix.add(0, 1, 5);
  matrix.add(1, 1, 3);
  CHECK(confusion_table(matrix, {"calm", "glad", "\u00fcbel"}) ==
        "label \\ predicted   calm   glad  \u00fcbel  recall\n"
        "calm                 115      5     0   0.958\n"
        "glad                   0      3     0   1.000\n"
        "\u00fcbel                   0      0     0       -\n"
        "precision          1.000  0.375     -\n");
}

TEST_CASE("a table with long names heads its columns with numbers") {
  const std::vector<std::string> labels(4, std::string(30, 'x'));
  ConfusionMatrix matrix(4);
  matrix.add(2, 3);
  const std::string table = confusion_table(matrix, labels);
  CHECK(table.starts_with("label \\ predicted                 0  1  2      3  recall\n"));
  CHECK(table.find("\n2 " + labels[2] + "  0  0  0      1   0.000\n") != std::string::npos);
}

TEST_CASE("many classes make a list of the worst confusions") {
  std::vector<std::string> labels;
  for (int k = 0; k < 13; ++k)
    labels.push_back("class_" + std::to_string(k));
  labels[4] = "card_arrival";
  labels[2] = "card_delivery_estimate";
  ConfusionMatrix matrix(13);
  for (int64_t k = 0; k < 13; ++k)
    matrix.add(k, k, 10);
  CHECK(confusion_table(matrix, labels) == "none of 130 rows confused\n");
  matrix.add(4, 2, 7);
  matrix.add(9, 8, 2);
  matrix.add(3, 12, 2);
  matrix.add(0, 1);
  CHECK(confusion_table(matrix, labels, 3) ==
        "12 of 142 rows confused (label -> prediction: rows), the worst 3 of 4 pairs\n"
        "card_arrival -> card_delivery_estimate: 7\n"
        "class_3 -> class_12: 2\n"
        "class_9 -> class_8: 2\n");
  CHECK(confusion_table(matrix, labels)
            .starts_with("12 of 142 rows confused (label -> prediction: rows), all 4 pairs\n"));
}
