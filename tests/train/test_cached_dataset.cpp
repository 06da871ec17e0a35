#include <filesystem>

#include <doctest/doctest.h>

#include "tests/core/contains.h"
#include "tests/core/temporary_folder.h"
#include "train/cached_dataset.h"

// Tokens of data files that are kept between runs.
using namespace minim;
using namespace minim::test;
using namespace minim::train;

namespace {

// [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, "a" 5, "b" 6, ...
text::Tokenizer letters(bool lowercase = true) {
  std::vector<std::string> pieces = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  for (char c = 'a'; c <= 'z'; ++c)
    pieces.emplace_back(1, c);
  return text::Tokenizer(text::TokenizerConfig::bert(pieces, lowercase));
}

void check_equal(const text::Examples& a, const text::Examples& b) {
  REQUIRE(a.sequences.size() == b.sequences.size());
  for (size_t i = 0; i < a.sequences.size(); ++i) {
    CHECK(a.sequences[i].input_ids == b.sequences[i].input_ids);
    CHECK(a.sequences[i].token_type_ids == b.sequences[i].token_type_ids);
  }
  REQUIRE(a.labels.shape() == b.labels.shape());
  REQUIRE(a.labels.dtype() == b.labels.dtype());
  CHECK(a.labels.to_vector<double>() == b.labels.to_vector<double>());
}

bool is_new(const CachedDataset& data) {
  CHECK(contains(data.origin(), "tokens are kept in") !=
        contains(data.origin(), "tokens are taken from"));
  return contains(data.origin(), "tokens are kept in");
}

// Files of their own beside a cache.
struct Files {
  TemporaryFolder folder;
  std::string cache = folder / "cache";

  std::string write(const std::string& name, const std::string& contents) const {
    write_whole_file(folder / name, contents);
    return folder / name;
  }
  CachedDataset open(const std::string& path, const text::DatasetOptions& options = {},
                     int64_t max_length = 8, bool lowercase = true, bool overwrite = false) const {
    return {
        path, options, letters(lowercase), max_length, {.folder = cache, .overwrite = overwrite}};
  }
  std::string tokens() const {
    std::string name;
    for (const auto& entry : std::filesystem::directory_iterator(cache))
      name = entry.path().string();
    return name;
  }
};

const std::string csv = "text,other,label\na b,c,yes\nA b c d e f g h,,no\n\"\",d,yes\nc,e,maybe\n";

}  // namespace

TEST_CASE("cached examples are those of the text, the first time and later") {
  const Files files;
  const std::string one = files.write("one.csv", csv);
  const std::string lists = files.write("lists.jsonl", R"({"text": "a", "label": ["x", "y"]}
{"text": "b", "label": []}
{"text": "c", "label": ["y"]}
)");
  const std::string numbers = files.write("numbers.tsv", "text\tlabel\na\t0.5\nb\t-2\nc\t0.5\n");
  const text::LabelSet classes({"maybe", "no", "yes"}), xy({"x", "y"});
  const text::LabelSet value(std::vector<std::string>{"LABEL_0"});
  struct Case {
    std::string path;
    text::DatasetOptions options;
    ProblemType type;
    text::LabelSet labels;
  };
  const Case cases[] = {
      {one, {.text_columns = {"text"}}, ProblemType::single_label_classification, classes},
      {one, {.text_columns = {"text", "other"}}, ProblemType::single_label_classification, classes},
      {lists, {.multi_label = true}, ProblemType::multi_label_classification, xy},
      {numbers, {}, ProblemType::regression, value}};
  for (const Case& c : cases) {
    const text::Dataset data = text::read_dataset(c.path, c.options);
    const EncodedDataset expected = encode_dataset(data, letters(), 6, c.type, c.labels);
    for (const bool again : {false, true}) {
      CachedDataset cached = files.open(c.path, c.options, 6);
      CHECK(is_new(cached) != again);
      CHECK(cached.why_not() == "");
      CHECK(cached.labelled().warnings == data.warnings);
      const EncodedDataset encoded = cached.encode(c.type, c.labels);
      check_equal(encoded.examples, expected.examples);
      CHECK(encoded.truncated_rows == expected.truncated_rows);
    }
  }
}

TEST_CASE("tokens are made anew where text, columns, length or tokenizer are others") {
  const Files files;
  const std::string path = files.write("data.csv", csv);
  const text::DatasetOptions options = {.text_columns = {"text"}};
  CHECK(is_new(files.open(path, options)));
  CHECK_FALSE(is_new(files.open(path, options)));
  CHECK(is_new(files.open(path, {.text_columns = {"other"}})));
  CHECK(is_new(files.open(path, {.role = text::Role::evaluate, .text_columns = {"text"}})));
  CHECK(is_new(files.open(path, options, 7)));
  CHECK(is_new(files.open(path, options, 8, false)));
  CHECK(is_new(files.open(path, options, 8, true, true)));  // --overwrite-cache
  files.write("data.csv", csv + "f,f,no\n");
  CHECK(is_new(files.open(path, options)));
  files.write("data.csv", csv);
  CHECK_FALSE(is_new(files.open(path, options)));
}

TEST_CASE("damaged tokens are never taken, and made anew") {
  const Files files;
  const std::string path = files.write("data.csv", csv);
  const text::DatasetOptions options = {.text_columns = {"text"}};
  (void)files.open(path, options);
  const std::string whole = read_whole_file(files.tokens());
  std::string changed = whole;
  changed[5] = char(changed[5] + 1);
  for (const std::string& bytes : {std::string(), whole.substr(0, whole.size() - 1), changed}) {
    write_whole_file(files.tokens(), bytes);
    const CachedDataset data = files.open(path, options);
    CHECK(is_new(data));
    CHECK(contains(data.why_not(), "data.csv is tokenized again"));
    CHECK(read_whole_file(files.tokens()) == whole);
  }
}

TEST_CASE("rows are chosen in an order, and leave with their label") {
  const Files files;
  CachedDataset data = files.open(files.write("data.csv", csv), {.text_columns = {"text"}});
  CHECK(data.file_rows() == 4);
  data.choose({3, 0, 2});
  REQUIRE(data.labelled().rows.size() == 2);  // no row says "no"
  CHECK(data.labelled().rows[0].times == 2);
  text::skip_unseen_labels(data.labelled(), text::LabelSet({"no", "yes"}));
  CHECK(contains(data.labelled().warnings.back(), "1 row skipped"));
  const EncodedDataset encoded =
      data.encode(ProblemType::single_label_classification, text::LabelSet({"no", "yes"}));
  CHECK(data.rows() == std::vector<int64_t>{0, 2});
  CHECK(encoded.examples.lengths() == std::vector<int64_t>{4, 2});
  CHECK(encoded.examples.labels.to_vector<int64_t>() == std::vector<int64_t>{1, 1});
}

TEST_CASE("a label that is no class is named with its line and its rows") {
  const Files files;
  CachedDataset data = files.open(files.write("data.csv", csv),
                                  {.role = text::Role::evaluate, .text_columns = {"text"}});
  const text::LabelSet labels({"no", "maybe"});
  try {
    (void)data.encode(ProblemType::single_label_classification, labels);
    FAIL("must throw");
  } catch (const Error& error) {
    CHECK(contains(error.what(),
                   "data.csv: line 2, field 3: label 'yes' does not occur in the "
                   "training file (2 rows)"));
  }
}

TEST_CASE("a text that cannot be read leaves no tokens") {
  const Files files;
  CHECK_THROWS(files.open(files.write("bad.csv", "text,label\na,1\nb\n")));
  CHECK(std::filesystem::is_empty(files.cache));
  CHECK_THROWS_WITH(files.open(files.folder / "none.csv"),
                    (files.folder / "none.csv: no such file").c_str());
}
