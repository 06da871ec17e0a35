#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "text/packing.h"

using namespace minim;
using namespace minim::text;
using Ints = std::vector<int32_t>;

namespace {

Ints ints(const Tensor& x) {
  return x.to_vector<int32_t>();
}

void check_equal(const PackedBatch& a, const PackedBatch& b) {
  CHECK(ints(a.input_ids) == ints(b.input_ids));
  CHECK(ints(a.position_ids) == ints(b.position_ids));
  CHECK(ints(a.offsets) == ints(b.offsets));
  CHECK(ints(a.key_begin) == ints(b.key_begin));
  REQUIRE(a.token_type_ids.defined() == b.token_type_ids.defined());
  if (a.token_type_ids.defined()) CHECK(ints(a.token_type_ids) == ints(b.token_type_ids));
}

PackedBatch pack_two_rows(const Tensor& mask, int32_t pad = 0) {
  const Tensor ids = Tensor::from<int64_t>({5, 6, 7, 0, 8, 9, 0, 0}, {2, 4});
  std::vector<std::string> notices;
  return pack_padded({.input_ids = ids, .attention_mask = mask}, pad, notices);
}

}  // namespace

TEST_CASE("packing puts sequences end to end") {
  const std::vector<TokenSequence> sequences = {{{101, 7, 102}, {}}, {{101, 102}, {0, 1}}};
  const Tensor labels = Tensor::from<int64_t>({1, 0}, {2});
  const PackedBatch batch = pack(sequences, labels);
  CHECK(ints(batch.input_ids) == Ints{101, 7, 102, 101, 102});
  CHECK(ints(batch.position_ids) == Ints{0, 1, 2, 0, 1});
  CHECK(ints(batch.token_type_ids) == Ints{0, 0, 0, 0, 1});
  CHECK(ints(batch.offsets) == Ints{0, 3, 5});
  CHECK(ints(batch.key_begin) == Ints{0, 3});
  CHECK(batch.tokens() == 5);
  CHECK(batch.sequences() == 2);
  CHECK(batch.labels.is_same(labels));
  CHECK(batch.input_ids.dtype() == DType::i32);
  CHECK_FALSE(pack(std::vector<TokenSequence>{{{101}, {}}}).token_type_ids.defined());
}

TEST_CASE("rows of a data set are packed in the order asked for, with their labels") {
  Examples examples{.sequences = {{{1}, {}}, {{2, 3}, {}}, {{4}, {}}},
                    .labels = Tensor::from<float>({0.f, 1.f, 2.f, 3.f, 4.f, 5.f}, {3, 2})};
  const std::vector<int64_t> rows = {2, 0};
  const PackedBatch batch = pack(examples, rows);
  CHECK(ints(batch.input_ids) == Ints{4, 1});
  CHECK(batch.labels.shape() == Shape{2, 2});
  CHECK(batch.labels.to_vector<float>() == std::vector<float>{4, 5, 0, 1});
  examples.labels = Tensor::from<int64_t>({7, 8, 9}, {3});
  CHECK(pack(examples, rows).labels.to_vector<int64_t>() == std::vector<int64_t>{9, 7});
  CHECK(examples.lengths() == std::vector<int64_t>{1, 2, 1});
}

TEST_CASE("packing padded input gives the same batch as packing the sequences themselves") {
  std::mt19937 random(1);
  std::vector<TokenSequence> sequences;
  const int64_t batch = 9, length = 12;
  std::vector<int64_t> ids(size_t(batch * length)), mask(ids.size()), types(ids.size());
  for (int64_t row = 0; row < batch; ++row) {
    TokenSequence& sequence = sequences.emplace_back();
    const int64_t tokens = row == 0 ? length : 1 + int64_t(random() % uint32_t(length));
    for (int64_t i = 0; i < tokens; ++i) {
      sequence.input_ids.push_back(int32_t(1 + random() % 1000));
      sequence.token_type_ids.push_back(int32_t(random() % 2));
      const size_t at = size_t(row * length + i);
      ids[at] = sequence.input_ids.back();
      types[at] = sequence.token_type_ids.back();
      mask[at] = 1;
    }
  }
  const Shape shape = {batch, length};
  PaddedInput padded{.input_ids = Tensor::from(ids, shape),
                     .attention_mask = Tensor::from(mask, shape),
                     .token_type_ids = Tensor::from(types, shape)};
  std::vector<std::string> notices;
  check_equal(pack_padded(padded, 0, notices), pack(sequences));
  CHECK(notices.empty());
  padded.attention_mask = Tensor();  // 0 is no token's id, so the mask follows from it
  check_equal(pack_padded(padded, 0, notices), pack(sequences));
  CHECK(notices.size() == 1);
}

TEST_CASE("masked tokens are dropped and the others keep their places") {
  const PackedBatch batch = pack_two_rows(Tensor::from<int64_t>({1, 0, 1, 0, 1, 1, 0, 1}, {2, 4}));
  CHECK(ints(batch.input_ids) == Ints{5, 7, 8, 9, 0});
  CHECK(ints(batch.position_ids) == Ints{0, 2, 0, 1, 3});
  CHECK(ints(batch.offsets) == Ints{0, 2, 5});
  CHECK(ints(batch.key_begin) == Ints{0, 2});
}

TEST_CASE("a masked first token is kept for the classifier, but nothing attends to it") {
  const PackedBatch batch =
      pack_two_rows(Tensor::from<float>({0.f, 0.f, 1.f, 1.f, 1.f, 1.f, 0.f, 0.f}, {2, 4}));
  CHECK(ints(batch.input_ids) == Ints{5, 7, 0, 8, 9});
  CHECK(ints(batch.position_ids) == Ints{0, 2, 3, 0, 1});
  CHECK(ints(batch.offsets) == Ints{0, 3, 5});
  CHECK(ints(batch.key_begin) == Ints{1, 3});
}

TEST_CASE("a missing mask is derived from the pad id, and said") {
  const Tensor ids = Tensor::from<int32_t>({5, 6, 1, 1}, {2, 2});
  std::vector<std::string> notices;
  CHECK_THROWS_WITH_AS(pack_padded({.input_ids = ids}, 1, notices),
                       "attention_mask: row 1 has no 1, must have at least one token to attend to",
                       Error);
  CHECK(notices ==
        std::vector<std::string>{
            "attention_mask: not given, so the 2 tokens equal to the pad id 1 are masked"});
  CHECK(pack_two_rows(Tensor(), 77).tokens() == 8);
}

TEST_CASE("input that means nothing is refused by its row") {
  CHECK_THROWS_WITH_AS(pack_two_rows(Tensor::from<int64_t>({1, 1, 1, 1, 0, 0, 0, 0}, {2, 4})),
                       "attention_mask: row 1 has no 1, must have at least one token to attend to",
                       Error);
  CHECK_THROWS_WITH_AS(pack_two_rows(Tensor::from<int64_t>({1, 1, 1, 1, 1, 2, 0, 0}, {2, 4})),
                       "attention_mask: value 2 in row 1, column 1, must be 0 or 1", Error);
  CHECK_THROWS_WITH_AS(pack_two_rows(Tensor::from<int64_t>({1, 1}, {2, 1})),
                       "attention_mask: [2, 1], must be [2, 4] as input_ids", Error);
  std::vector<std::string> notices;
  CHECK_THROWS_WITH_AS(
      pack_padded({.input_ids = Tensor::from<int64_t>({5, -1}, {1, 2})}, 0, notices),
      "input_ids: id -1 in row 0, column 1, must be 0 to 2^31 - 1", Error);
  CHECK_THROWS_WITH_AS(pack(std::vector<TokenSequence>{}),
                       "pack: no sequences, must be at least one", Error);
  CHECK_THROWS_WITH_AS(pack(std::vector<TokenSequence>{{{1}, {}}, {{}, {}}}),
                       "pack: sequence 1 has no tokens, must have at least one", Error);
  CHECK_THROWS_WITH_AS(
      pack(std::vector<TokenSequence>{{{1}, {}}}, Tensor::from<int64_t>({1, 2}, {2})),
      "pack: labels [2] for 1 sequences, must have one row for each", Error);
}
