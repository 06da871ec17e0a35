#include <cmath>
#include <numeric>

#include <doctest/doctest.h>

#include "tests/core/temporary_folder.h"
#include "train/text_classification.h"

// From a data file to token ids and labels, and from logits to probabilities.
using namespace minim;
using namespace minim::test;
using namespace minim::train;

namespace {

// [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, "a" 5, "b" 6, ...
text::Tokenizer letters() {
  std::vector<std::string> pieces = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (char c = 'a'; c <= 'z'; ++c)
    pieces.emplace_back(1, c);
  return text::Tokenizer(text::TokenizerConfig::bert(pieces, true));
}

text::Dataset read(const std::string& csv, const text::DatasetOptions& options = {}) {
  return text::parse_dataset("data.csv", csv, options);
}

using Ids = std::vector<int32_t>;
constexpr auto single = ProblemType::single_label_classification;

}  // namespace

TEST_CASE("texts become ids between [CLS] and [SEP], labels their class") {
  const EncodedDataset encoded = encode_dataset(read("text,label\na b,no\nC,yes\n"), letters(), 8,
                                                single, text::LabelSet({"no", "yes"}));
  REQUIRE(encoded.examples.sequences.size() == 2);
  CHECK(encoded.examples.sequences[0].input_ids == Ids{2, 5, 6, 3});
  CHECK(encoded.examples.sequences[1].input_ids == Ids{2, 7, 3});
  CHECK(encoded.examples.labels.to_vector<int64_t>() == std::vector<int64_t>{0, 1});
  CHECK(encoded.truncated_rows == 0);
}

TEST_CASE("long texts are cut and counted") {
  const EncodedDataset encoded =
      encode_dataset(read("text,label\na b c,1\na b c d,2\na b c d e f g h,1\n"), letters(), 5,
                     single, text::LabelSet({"1", "2"}));
  CHECK(encoded.examples.lengths() == std::vector<int64_t>{5, 5, 5});
  CHECK(encoded.truncated_rows == 2);
  CHECK(encoded.examples.sequences[2].input_ids == Ids{2, 5, 6, 7, 3});
}

TEST_CASE("an empty text is [CLS] [SEP]") {
  const EncodedDataset encoded = encode_dataset(read("text,label\n\"\",1\na,2\n"), letters(), 5,
                                                single, text::LabelSet({"1", "2"}));
  CHECK(encoded.examples.sequences[0].input_ids == Ids{2, 3});
}

TEST_CASE("pairs stand one after the other, with token types") {
  const EncodedDataset encoded =
      encode_dataset(read("one,two,label\na b,c,1\n\"\",d,2\n", {.text_columns = {"one", "two"}}),
                     letters(), 8, single, text::LabelSet({"1", "2"}));
  CHECK(encoded.examples.sequences[0].input_ids == Ids{2, 5, 6, 3, 7, 3});
  CHECK(encoded.examples.sequences[0].token_type_ids == Ids{0, 0, 0, 0, 1, 1});
  CHECK(encoded.examples.sequences[1].input_ids == Ids{2, 3, 8, 3});
}

TEST_CASE("labels of regression are numbers, those of several classes 0 and 1") {
  const EncodedDataset numbers =
      encode_dataset(read("text,label\na,0.5\nb,-2\n"), letters(), 8, ProblemType::regression,
                     text::LabelSet(std::vector<std::string>{"LABEL_0"}));
  CHECK(numbers.examples.labels.dtype() == DType::f32);
  CHECK(numbers.examples.labels.to_vector<float>() == std::vector<float>{0.5f, -2.0f});

  const text::Dataset lists = text::parse_dataset(
      "data.jsonl",
      "{\"text\": \"a\", \"label\": [\"x\", \"z\"]}\n{\"text\": \"b\", \"label\": []}\n",
      {.multi_label = true});
  const EncodedDataset several =
      encode_dataset(lists, letters(), 8, ProblemType::multi_label_classification,
                     text::LabelSet({"x", "y", "z"}));
  CHECK(several.examples.labels.shape() == Shape{2, 3});
  CHECK(several.examples.labels.to_vector<float>() == std::vector<float>{1, 0, 1, 0, 0, 0});
}

TEST_CASE("a file without labels gives examples without labels") {
  const EncodedDataset encoded = encode_dataset(read("text\na\n", {.role = text::Role::predict}),
                                                letters(), 8, single, text::LabelSet({"1", "2"}));
  CHECK(!encoded.examples.labels.defined());
}

TEST_CASE("text that is not UTF-8 is refused with its file and line") {
  text::Dataset data = read("text,label\na,1\nb,2\n");
  data.rows[1].text = "b" + from_hex("ff");
  const std::string error = error_of([&] {
    encode_dataset(data, letters(), 8, single, text::LabelSet({"1", "2"}));
  });
  CHECK(error.starts_with("data.csv: line 3: "));
}

TEST_CASE("a label that is no class is refused with its place") {
  const std::string error = error_of([] {
    encode_dataset(read("text,label\na,1\nb,3\n", {.role = text::Role::evaluate}), letters(), 8,
                   single, text::LabelSet({"1", "2"}));
  });
  CHECK(error ==
        "data.csv: line 3, field 2: label '3' does not occur in the training file (1 row); did you "
        "mean '1'?; skip such rows with --skip-unseen-labels");
}

TEST_CASE("probabilities of one class sum to 1, however large the logits") {
  for (const std::vector<float>& logits :
       {std::vector<float>{0.0f, 1.0f, -1.0f}, {300.0f, -300.0f, 0.0f}, {-3e38f, 3e38f, 3e38f}}) {
    const std::vector<double> p = probabilities(logits, single);
    CHECK(std::accumulate(p.begin(), p.end(), 0.0) == doctest::Approx(1).epsilon(1e-15));
    for (double value : p)
      CHECK((value >= 0 && value <= 1));
  }
  // exp(x) / sum of exp
  const double total = 1 + std::exp(1.0) + std::exp(-1.0);
  CHECK(probabilities(std::vector<float>{0, 1, -1}, single)[1] ==
        doctest::Approx(std::exp(1.0) / total).epsilon(1e-15));
}

TEST_CASE("several classes have a probability each; regression keeps its value") {
  const std::vector<double> p =
      probabilities(std::vector<float>{0, 2, -500}, ProblemType::multi_label_classification);
  CHECK(p[0] == 0.5);
  CHECK(p[1] == doctest::Approx(1 / (1 + std::exp(-2.0))).epsilon(1e-15));
  CHECK(p[2] == doctest::Approx(0).epsilon(1e-15));
  CHECK(probabilities(std::vector<float>{-7.5f}, ProblemType::regression) ==
        std::vector<double>{-7.5});
}

TEST_CASE("a tokenizer with more ids than the model has rows is refused") {
  check_vocabulary(letters(), 31, "folder");
  CHECK(error_of([] { check_vocabulary(letters(), 30, "folder"); }) ==
        "folder: the tokenizer has ids up to 30, the embedding table 30 rows; use the tokenizer "
        "that the model was trained with");
}

TEST_CASE("kinds of task have Hugging Face's names") {
  for (const char* name :
       {"single_label_classification", "multi_label_classification", "regression"})
    CHECK(name_of(parse_problem_type(name)) == name);
  CHECK(error_of([] { parse_problem_type("ranking"); }) ==
        "problem_type: \"ranking\" is unknown; there are single_label_classification, "
        "multi_label_classification and regression");
}
