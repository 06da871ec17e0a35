#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "tests/text/sha256.h"
#include "tests/text/tokenizer_data.h"
#include "text/csv.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

// What holds for every text, and what only shows on long ones.
namespace minim::text {
namespace {

using nlohmann::json;

// A text of letters, accents, marks, ideographs, emoji, white space, punctuation, controls and
// special tokens.
std::string random_text(std::mt19937& random) {
  constexpr const char* parts[] = {
      "a",     "B",      "the",    "ing",           " ",      "  ",     "\t", "\u00a0", ".",
      "'",     "é",      "É",      "e\u0301\u0323", "\u0130", "ß",      "中", "が",     "한",
      "😀",     "\u0007", "\u200b", "\u0345\u0301",  "[SEP]",  "[MASK]", "[",  "##",     "\u1fef",
      "\uf900"};
  std::string text;
  for (size_t i = random() % 30; i > 0; --i)
    text += parts[random() % std::size(parts)];
  return text;
}

double seconds_of(const Tokenizer& tokenizer, const std::string& text, bool offsets) {
  std::vector<int32_t> ids;
  const auto start = std::chrono::steady_clock::now();
  if (offsets)
    tokenizer.encode(text);
  else
    tokenizer.encode_ids(text, ids);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string repeated(const std::string& unit, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i)
    text += unit;
  return text;
}

TEST_CASE("the fast way gives the ids of the way with offsets, on random texts") {
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    const std::string text = random_text(random), other = random_text(random);
    CAPTURE(text);
    for (const bool cased : {true, false}) {
      const Tokenizer& tokenizer = bert_tokenizer(cased);
      EncodeOptions options;
      options.split_special_tokens = random() % 4 == 0;
      if (random() % 2) options.max_length = 3 + int64_t(random() % 20);
      if (random() % 2) options.truncation_side = Side::left;
      std::vector<int32_t> ids, types;
      const int64_t cut = tokenizer.encode_ids(text, ids, options);
      const Encoding single = tokenizer.encode(text, options);
      CHECK(ids == single.ids);
      CHECK(cut == single.truncated);
      tokenizer.encode_ids(text, other, ids, types, options);
      const Encoding pair = tokenizer.encode(text, other, options);
      CHECK(ids == pair.ids);
      CHECK(types == pair.type_ids);
    }
  }
}

TEST_CASE("offsets ascend, lie inside the text and mean the same in code points and bytes") {
  std::mt19937 random(4);
  for (int i = 0; i < 1000; ++i) {
    const std::string text = random_text(random);
    CAPTURE(text);
    const Encoding encoding =
        bert_tokenizer(i % 2 == 0).encode(text, {.add_special_tokens = false});
    std::vector<size_t> starts;  // byte of each code point
    for (size_t at = 0; at < text.size(); at += size_t(decode_utf8(text, at).length))
      starts.push_back(at);
    starts.push_back(text.size());
    int64_t begin = 0;
    for (size_t k = 0; k < encoding.ids.size(); ++k) {
      const Span chars = encoding.offsets[k], bytes = encoding.byte_offsets[k];
      CHECK(chars.begin >= begin);
      CHECK(chars.end > chars.begin);
      REQUIRE(chars.end < int64_t(starts.size()));
      CHECK(bytes.begin == int64_t(starts[size_t(chars.begin)]));
      CHECK(bytes.end == int64_t(starts[size_t(chars.end)]));
      begin = chars.begin;
    }
  }
}

TEST_CASE("decoding ids and encoding the text again gives the ids") {
  for (const json& row : json_lines(tokenizer_data("real_text.jsonl"))) {
    for (const bool cased : {true, false}) {
      const Tokenizer& tokenizer = bert_tokenizer(cased);
      const auto ids = row[cased ? "cased" : "uncased"].get<std::vector<int32_t>>();
      const std::string text = tokenizer.decode(ids, {true, true});
      CAPTURE(text);
      // An unknown word cannot come back.
      if (std::count(ids.begin(), ids.end(), tokenizer.unk_token_id()) > 0) continue;
      CHECK(tokenizer.encode(text).ids == ids);
    }
  }
}

TEST_CASE("truncation keeps as many tokens as fit, from the side that it spares") {
  const Tokenizer& tokenizer = bert_tokenizer(false);
  const std::string first = repeated("a ", 9), second = repeated("b ", 5);
  for (int64_t length = 3; length < 20; ++length) {
    for (const Side side : {Side::right, Side::left}) {
      const EncodeOptions options{.max_length = length, .truncation_side = side};
      CHECK(int64_t(tokenizer.encode(first, options).ids.size()) == std::min<int64_t>(length, 11));
      const Encoding pair = tokenizer.encode(first, second, options);
      CHECK(int64_t(pair.ids.size()) == std::min<int64_t>(length, 17));
      CHECK(pair.truncated == std::max<int64_t>(0, 17 - length));
    }
  }
  CHECK(tokenizer.encode("a b c d", {.max_length = 4}).tokens ==
        std::vector<std::string>{"[CLS]", "a", "b", "[SEP]"});
  CHECK(tokenizer.encode("a b c d", {.max_length = 4, .truncation_side = Side::left}).tokens ==
        std::vector<std::string>{"[CLS]", "c", "d", "[SEP]"});
  CHECK_THROWS_WITH(
      tokenizer.encode("a b", "c", {.max_length = 4, .truncation = Truncation::only_second}),
      "truncation: only_second must remove 2 tokens, but the second text has only 1; use "
      "longest_first");
}

TEST_CASE("longest_first shortens pairs as the library does") {
  // Budget 7, from the library: lengths before, lengths after.
  const int64_t cases[][4] = {{0, 8, 0, 7}, {2, 8, 2, 5}, {4, 4, 3, 4}, {8, 4, 4, 3}, {8, 8, 3, 4}};
  for (const auto& [first, second, kept_first, kept_second] : cases) {
    const KeptTokens kept = truncate(first, second, 7, Truncation::longest_first);
    CHECK(kept.first == kept_first);
    CHECK(kept.second == kept_second);
  }
}

TEST_CASE("replacing ill-formed bytes changes nothing in well-formed texts") {
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const std::string text = random_text(random);
    CHECK(bert_tokenizer(true).encode(text, {.invalid_utf8 = InvalidUtf8::replace}).ids ==
          bert_tokenizer(true).encode(text).ids);
  }
}

TEST_CASE("the time for a text of a million characters is not quadratic") {
  // Each of these takes some tens of milliseconds when it is linear; quadratic ones take hours.
  const std::string texts[] = {
      std::string(1000000, 'a'),               // one word
      repeated("ab ", 333333),                 // many words
      std::string(1000000, '!'),               // punctuation
      repeated("é", 1000000),                  // one word outside ASCII
      "a" + repeated("\u0301", 1000000),       // one letter with all the marks
      "a" + repeated("\u0301\u0323", 500000),  // marks that must be sorted
      repeated("中", 1000000),                 // ideographs
      repeated("[", 1000000),                  // beginnings of special tokens
      repeated("[SEP]", 200000),               // special tokens
      std::string(1000000, '\0'),              // nothing but deleted characters
      repeated("\u0130", 1000000),
  };
  for (const std::string& text : texts) {
    CAPTURE(text.substr(0, 12));
    CHECK(seconds_of(bert_tokenizer(false), text, false) < 60);
    CHECK(seconds_of(bert_tokenizer(true), text, false) < 60);
    // The way with offsets costs more for each token; a fifth of the length shows as much.
    const std::string start = replace_invalid_utf8(text.substr(0, 200000));
    CHECK(seconds_of(bert_tokenizer(false), start, true) < 60);
  }
}

TEST_CASE("one tokenizer may be used by several threads") {
  const auto rows = json_lines(tokenizer_data("real_text.jsonl"));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      std::vector<int32_t> ids;
      for (const json& row : rows) {
        bert_tokenizer(true).encode_ids(row["text"].get_ref<const std::string&>(), ids);
        wrong[t] += json(ids) != row["cased"];
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  CHECK(wrong == std::vector<int>(4));
}

TEST_CASE("all of banking77 has the library's ids") {
  std::vector<std::string> texts, warnings;
  for (const char* name : {"train.csv", "test.csv"}) {
    const TextFile file = read_text_file(
        std::string(MINIM_TEST_DATA "/../../examples/banking77/") + name, false, warnings);
    CsvReader reader(file, ',', true);
    CsvRecord record;
    REQUIRE(reader.next(record));  // the header
    REQUIRE(record.fields[0] == "text");
    while (reader.next(record))
      texts.push_back(record.fields[0]);
  }
  REQUIRE(texts.size() == 13083);
  const json expected = json_lines(tokenizer_data("dataset_hashes.json"))[0]["banking77"];
  for (const bool cased : {true, false}) {
    for (const bool cut : {false, true}) {
      const std::string key = std::string(cased ? "cased" : "uncased") + (cut ? "_max128" : "");
      CAPTURE(key);
      EncodeOptions options;
      if (cut) options.max_length = 128;
      std::string all;
      std::vector<int32_t> ids;
      size_t count = 0;
      for (const std::string& text : texts) {
        bert_tokenizer(cased).encode_ids(text, ids, options);
        count += ids.size();
        fmt::format_to(std::back_inserter(all), "{}\n", fmt::join(ids, " "));
      }
      CHECK(count == expected[key]["ids"]);
      CHECK(sha256(all) == expected[key]["sha256"]);
    }
  }
}

}  // namespace
}  // namespace minim::text
