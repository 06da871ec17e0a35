#include <random>

#include "core/error.h"
#include "tests/text/tokenizer_data.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace minim::text {
namespace {

using nlohmann::json;

std::string text_of(const json& row) {
  if (row.contains("text")) return row["text"].get<std::string>();
  std::string text;
  for (int i = 0; i < row["text_repeat"][1].get<int>(); ++i)
    text += row["text_repeat"][0].get<std::string>();
  return text;
}

Side side_of(const json& name) {
  return name == "left" ? Side::left : Side::right;
}

EncodeOptions encode_options(const json& row) {
  EncodeOptions options;
  options.add_special_tokens = row.value("add_special_tokens", true);
  options.split_special_tokens = row.value("encode_special_tokens", false);
  if (row.contains("max_length")) options.max_length = row["max_length"].get<int64_t>();
  const std::string strategy = row.value("truncation", "do_not_truncate");
  for (const auto candidate : {Truncation::longest_first, Truncation::only_first,
                               Truncation::only_second, Truncation::do_not_truncate})
    if (name_of(candidate) == strategy) options.truncation = candidate;
  if (row.contains("truncation_side")) options.truncation_side = side_of(row["truncation_side"]);
  return options;
}

void pad_as(const json& row, const Tokenizer& tokenizer, std::vector<Encoding>& batch) {
  if (!row.contains("padding")) return;
  PaddingOptions options;
  if (row["padding"] == "max_length")
    options.length = row.contains("pad_length") ? row["pad_length"].get<int64_t>()
                                                : row["max_length"].get<int64_t>();
  options.pad_to_multiple_of = row.value("pad_to_multiple_of", 1);
  if (row.contains("padding_side")) options.side = side_of(row["padding_side"]);
  tokenizer.pad(batch, options);
}

json spans(const std::vector<Span>& spans) {
  json list = json::array();
  for (const Span& span : spans)
    list.push_back({span.begin, span.end});
  return list;
}

// Ids without padding by the fast way.
std::vector<int32_t> fast_ids(const Tokenizer& tokenizer, const json& row,
                              const EncodeOptions& options, std::vector<int32_t>& type_ids) {
  std::vector<int32_t> ids{-1, -1, -1};  // whatever is in there is replaced
  if (row.contains("pair")) {
    tokenizer.encode_ids(text_of(row), row["pair"].get<std::string>(), ids, type_ids, options);
  } else {
    tokenizer.encode_ids(text_of(row), ids, options);
    type_ids.assign(ids.size(), 0);
  }
  return ids;
}

TEST_CASE("ids, tokens, types, masks and offsets equal the library's in every reference case") {
  const auto rows = json_lines(tokenizer_data("cases.jsonl"));
  REQUIRE(rows.size() == 714);
  for (const json& row : rows) {
    CAPTURE(row.at("id").get<std::string>());
    CAPTURE(row.at("vocab").get<std::string>());
    const Tokenizer& tokenizer = bert_tokenizer(row);
    const EncodeOptions options = encode_options(row);
    const auto encode = [&] {
      return row.contains("pair")
                 ? tokenizer.encode(text_of(row), row["pair"].get<std::string>(), options)
                 : tokenizer.encode(text_of(row), options);
    };
    std::vector<int32_t> type_ids;
    if (row.contains("error")) {
      CHECK_THROWS_AS(encode(), Error);
      CHECK_THROWS_AS(fast_ids(tokenizer, row, options, type_ids), Error);
      continue;
    }
    std::vector<Encoding> batch{encode()};
    CHECK(fast_ids(tokenizer, row, options, type_ids) == batch[0].ids);
    CHECK(type_ids == batch[0].type_ids);
    pad_as(row, tokenizer, batch);
    const Encoding& encoding = batch[0];
    CHECK(json(encoding.ids) == row["ids"]);
    CHECK(json(encoding.tokens) == row["tokens"]);
    CHECK(json(encoding.type_ids) == row["type_ids"]);
    CHECK(json(encoding.attention_mask) == row["attention_mask"]);
    CHECK(spans(encoding.offsets) == row["offsets"]);
    CHECK(spans(encoding.byte_offsets) == row["byte_offsets"]);
  }
}

TEST_CASE("batches are padded as the library pads them") {
  const auto rows = json_lines(tokenizer_data("batches.jsonl"));
  REQUIRE(rows.size() == 70);
  for (const json& row : rows) {
    CAPTURE(row.at("id").get<std::string>());
    const Tokenizer& tokenizer = bert_tokenizer(row);
    const EncodeOptions options = encode_options(row);
    std::vector<Encoding> batch;
    for (const json& text : row.contains("pairs") ? row["pairs"] : row["texts"])
      batch.push_back(text.is_array() ? tokenizer.encode(text[0].get<std::string>(),
                                                         text[1].get<std::string>(), options)
                                      : tokenizer.encode(text.get<std::string>(), options));
    pad_as(row, tokenizer, batch);
    json ids = json::array(), masks = json::array(), types = json::array();
    for (const Encoding& encoding : batch) {
      ids.push_back(encoding.ids);
      masks.push_back(encoding.attention_mask);
      types.push_back(encoding.type_ids);
    }
    CHECK(ids == row["ids"]);
    CHECK(masks == row["attention_mask"]);
    CHECK(types == row["type_ids"]);
  }
}

TEST_CASE("ids decode to the library's text with and without clean-up and special tokens") {
  const auto rows = json_lines(tokenizer_data("decode.jsonl"));
  REQUIRE(rows.size() == 48);
  for (const json& row : rows) {
    CAPTURE(row.at("id").get<std::string>());
    const Tokenizer& tokenizer = bert_tokenizer(row);
    const auto ids = row["ids"].get<std::vector<int32_t>>();
    CHECK(tokenizer.decode(ids, {true, true}) == row["cleanup_skip"]);
    CHECK(tokenizer.decode(ids, {false, true}) == row["cleanup_keep"]);
    CHECK(tokenizer.decode(ids, {true, false}) == row["plain_skip"]);
    CHECK(tokenizer.decode(ids, {false, false}) == row["plain_keep"]);
  }
}

TEST_CASE("tokens and ids convert into one another") {
  const auto rows = json_lines(tokenizer_data("conversions.jsonl"));
  REQUIRE(rows.size() == 56);
  for (const json& row : rows) {
    CAPTURE(row.dump());
    const Tokenizer& tokenizer = bert_tokenizer(row);
    if (row["group"] == "size") {
      CHECK(tokenizer.vocab_size() == row["vocab_size"]);
    } else if (row["group"] == "token") {
      const auto id = tokenizer.token_to_id(row["token"].get<std::string>());
      CHECK((id ? json(*id) : json()) == row["token_id"]);
    } else {
      const auto token = tokenizer.id_to_token(row["token_id"].get<int32_t>());
      CHECK((token ? json(*token) : json()) == row["token"]);
    }
  }
}

TEST_CASE("bytes that are not UTF-8 are refused with their offset, or replaced on request") {
  const auto rows = json_lines(tokenizer_data("invalid_utf8.jsonl"));
  REQUIRE(rows.size() == 20);
  for (const json& row : rows) {
    CAPTURE(row.at("id").get<std::string>());
    std::string bytes;
    const auto hex = row["bytes_hex"].get<std::string>();
    for (size_t i = 0; i < hex.size(); i += 2)
      bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
    const std::string message = "tokenizer: the text is not UTF-8 at byte offset " +
                                row["strict"]["byte_offset"].dump() + " (byte 0x";
    for (const bool cased : {true, false}) {
      const Tokenizer& tokenizer = bert_tokenizer(cased);
      std::vector<int32_t> ids;
      CHECK_THROWS_WITH_AS(tokenizer.encode(bytes), doctest::Contains(message.c_str()), Error);
      CHECK_THROWS_AS(tokenizer.encode_ids(bytes, ids), Error);
      const EncodeOptions replace{.invalid_utf8 = InvalidUtf8::replace};
      const json& expected = row["replace"][cased ? "cased_ids" : "uncased_ids"];
      CHECK(json(tokenizer.encode(bytes, replace).ids) == expected);
      tokenizer.encode_ids(bytes, ids, replace);
      CHECK(json(ids) == expected);
    }
  }
  CHECK_THROWS_WITH(bert_tokenizer(true).encode("\xFF\xFEh"),
                    "tokenizer: the text is not UTF-8 at byte offset 0 (byte 0xFF); it looks like "
                    "UTF-16, convert it to UTF-8");
}

TEST_CASE("a max_length below the number of special tokens is refused") {
  const auto rows = json_lines(tokenizer_data("below_specials.jsonl"));
  REQUIRE(rows.size() == 14);
  for (const json& row : rows) {
    CAPTURE(row.dump());
    const Tokenizer& tokenizer = bert_tokenizer(row);
    const EncodeOptions options{.max_length = row["max_length"].get<int64_t>()};
    const auto encode = [&] {
      return row.contains("pair")
                 ? tokenizer.encode(text_of(row), row["pair"].get<std::string>(), options)
                 : tokenizer.encode(text_of(row), options);
    };
    if (row["required"] == "same ids")
      CHECK(json(encode().ids) == row["library_ids"]);
    else
      CHECK_THROWS_AS(encode(), Error);
  }
  CHECK_THROWS_WITH(bert_tokenizer(true).encode("a", {.max_length = 1}),
                    "tokenizer: max_length 1 is smaller than the number of special tokens of a "
                    "single text (2)");
}

TEST_CASE("lines of real data sets have the library's ids") {
  const auto rows = json_lines(tokenizer_data("real_text.jsonl"));
  REQUIRE(rows.size() == 1336);
  for (const json& row : rows) {
    const auto text = row["text"].get<std::string>();
    CAPTURE(text);
    for (const bool cased : {true, false}) {
      std::vector<int32_t> ids;
      bert_tokenizer(cased).encode_ids(text, ids);
      CHECK(json(ids) == row[cased ? "cased" : "uncased"]);
      CHECK(bert_tokenizer(cased).encode(text).ids == ids);
    }
  }
}

}  // namespace
}  // namespace minim::text
