#include <doctest/doctest.h>

#include "core/error.h"
#include "core/file.h"
#include "tests/core/contains.h"
#include "tests/core/temporary_folder.h"
#include "text/packing.h"
#include "text/token_file.h"

// Tokens in a file, and the hash that tells contents apart.
using namespace minim;
using namespace minim::test;
using namespace minim::text;

namespace {

ContentHash hash_of(std::string_view text) {
  ContentHasher hasher;
  hasher.add(text);
  return hasher.finish();
}

constexpr ContentHash key = {1, 2};

const std::vector<TokenSequence> three = {
    {{2, 5, 3}, {}}, {{2, 3}, {}}, {{2, 7, 3, 8, 3}, {0, 0, 0, 1, 1}}};

void write_three(const std::string& path) {
  TokenFileWriter writer(path, key);
  writer.add(three[0], 7, false);
  writer.add(three[1], 9, true);
  writer.add(three[2], 7, false);
  writer.commit("notes");
}

std::string why_refused(const std::string& path, ContentHash asked = key) {
  try {
    const TokenFile file(path, asked);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("the hash is MurmurHash3_x64_128, however the bytes are cut") {
  // Known values, as in Guava's tests.
  CHECK(hash_of("").hex() == "00000000000000000000000000000000");
  CHECK(hash_of("hello").hex() == "cbd8a7b341bd9b025b1e906a48ae1d19");
  const std::string fox = "The quick brown fox jumps over the lazy dog";
  CHECK(hash_of(fox).hex() == "e34bbc7bbc071b6c7a433ca9c49a9347");
  for (size_t part = 1; part < fox.size(); ++part) {
    ContentHasher hasher;
    for (size_t at = 0; at < fox.size(); at += part)
      hasher.add(std::string_view(fox).substr(at, part));
    CHECK(hasher.finish() == hash_of(fox));
  }
}

TEST_CASE("a token file gives back what was written, in any order") {
  const TemporaryFolder folder;
  write_three(folder / "tokens");
  CHECK(folder.files() == std::vector<std::string>{"tokens"});
  const TokenFile file(folder / "tokens", key);
  CHECK(file.size() == 3);
  CHECK(file.notes() == "notes");
  TokenSequence sequence;
  for (const int64_t row : {2, 0, 1}) {
    file.read(row, sequence);
    CHECK(sequence.input_ids == three[size_t(row)].input_ids);
    CHECK(sequence.token_type_ids == three[size_t(row)].token_type_ids);
    CHECK(file.length(row) == int64_t(sequence.input_ids.size()));
    CHECK(file.was_cut(row) == (row == 1));
    CHECK(file.label(row) == (row == 1 ? 9 : 7));
  }
}

TEST_CASE("examples of a file make the same batches as those in memory") {
  const TemporaryFolder folder;
  write_three(folder / "tokens");
  const auto file = std::make_shared<const TokenFile>(folder / "tokens", key);
  const Tensor labels = Tensor::from(std::vector<int64_t>{4, 5, 6}, {3});
  const Examples in_memory{.sequences = three, .labels = labels};
  const Examples in_file{.sequences = Sequences(file, {0, 1, 2}), .labels = labels};
  CHECK(in_file.lengths() == in_memory.lengths());
  const std::vector<int64_t> rows = {2, 1, 2};
  const PackedBatch a = pack(in_memory, rows), b = pack(in_file, rows);
  CHECK(a.input_ids.to_vector<int32_t>() == b.input_ids.to_vector<int32_t>());
  CHECK(a.token_type_ids.to_vector<int32_t>() == b.token_type_ids.to_vector<int32_t>());
  CHECK(a.offsets.to_vector<int32_t>() == b.offsets.to_vector<int32_t>());
  CHECK(a.labels.to_vector<int64_t>() == b.labels.to_vector<int64_t>());
  CHECK_THROWS_WITH(Sequences(file, {3}), "sequences: row 3 of 3");
}

TEST_CASE("a token file that is cut, changed anywhere, or another's, is refused") {
  const TemporaryFolder folder;
  const std::string path = folder / "tokens";
  write_three(path);
  const std::string whole = read_whole_file(path);
  // 15 numbers, 3 examples of 12 bytes, the notes and the footer.
  REQUIRE(whole.size() == 15 * 4 + 3 * 12 + 5 + 72);
  CHECK(why_refused(path) == "");
  CHECK(contains(why_refused(path, {1, 3}), "other data or with other options"));
  for (size_t size = 0; size < whole.size(); ++size) {
    write_whole_file(path, whole.substr(0, size));
    CHECK(why_refused(path) != "");
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = char(changed[at] ^ 0x10);
    write_whole_file(path, changed);
    CHECK(why_refused(path) != "");
  }
  write_whole_file(path, whole + "x");
  CHECK(why_refused(path) != "");
}

TEST_CASE("a token file that is not committed leaves nothing behind") {
  const TemporaryFolder folder;
  { TokenFileWriter(folder / "tokens", key).add(three[0], 0, false); }
  CHECK(folder.files().empty());
}
