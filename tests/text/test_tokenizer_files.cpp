#include <algorithm>
#include <filesystem>
#include <map>

#include "core/error.h"
#include "tests/text/tokenizer_data.h"
#include "text/tokenizer_files.h"

namespace minim::text {
namespace {

using nlohmann::json;

const std::string folders = MINIM_TEST_DATA "/tokenizer_files/";

json ids_of(const Tokenizer& tokenizer, const json& texts, const EncodeOptions& options = {}) {
  json all = json::array();
  for (const json& text : texts) {
    const auto encoding = tokenizer.encode(text.get<std::string>(), options);
    std::vector<int32_t> ids;
    tokenizer.encode_ids(text.get<std::string>(), ids, options);
    CHECK(ids == encoding.ids);
    all.push_back(encoding.ids);
  }
  return all;
}

json padded_ids(const Tokenizer& tokenizer, const json& texts, int64_t length) {
  std::vector<Encoding> batch;
  for (const json& text : texts)
    batch.push_back(tokenizer.encode(text.get<std::string>(), {.max_length = length}));
  tokenizer.pad(batch, {.length = length});
  json all = json::array();
  for (const Encoding& encoding : batch)
    all.push_back(encoding.ids);
  return all;
}

// The error that a folder gives, or an empty text.
std::string error_of(const std::string& folder) {
  try {
    load_tokenizer(folder);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A new folder for one test, removed at its end.
struct TemporaryFolder {
  std::filesystem::path path;
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "minim-tokenizer-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
};

struct Cases {
  json texts;
  std::vector<json> rows;
  Cases() : rows(json_lines(folders + "expected.jsonl")) {
    texts = rows.front()["texts"];
    rows.erase(rows.begin());
  }
  json column(const json& row, const std::string& name) const {
    const json& library = row["library"];
    return library.contains(name) ? library[name] : json::object();
  }
};

TEST_CASE("every form of tokenizer files gives the required ids, warning or refusal") {
  const Cases cases;
  REQUIRE(cases.rows.size() == 80);
  for (const json& row : cases.rows) {
    const auto id = row["id"].get<std::string>();
    CAPTURE(id);
    const json& required = row["required"];
    const std::string error = error_of(folders + id);
    CAPTURE(error);
    if (required.contains("error")) {
      CHECK(error.starts_with(folders + id));
      continue;
    }
    if (!error.empty()) {
      CHECK(required.value("or_error", false));
      continue;
    }
    const LoadedTokenizer loaded = load_tokenizer(folders + id);
    const json ids = ids_of(loaded.tokenizer, cases.texts);
    if (required.contains("ids_of_case")) {
      const auto other = required["ids_of_case"].get<std::string>();
      CHECK(ids == ids_of(load_tokenizer(folders + other).tokenizer, cases.texts));
    } else if (const json column = cases.column(row, required["ids_of"].get<std::string>());
               column.contains("ids")) {
      CHECK(ids == column["ids"]);
      if (column.contains("max_length_6_padded"))
        CHECK(padded_ids(loaded.tokenizer, cases.texts, 6) == column["max_length_6_padded"]);
      if (column.contains("truncation_true"))
        CHECK(ids_of(loaded.tokenizer, cases.texts,
                     {.max_length = loaded.tokenizer.config().model_max_length}) ==
              column["truncation_true"]);
    }
    if (required.contains("warn")) CHECK(!loaded.notes.empty());
  }
}

TEST_CASE("refusals name the file and the place") {
  const std::pair<const char*, const char*> errors[] = {
      {"vocab_duplicate_special", "vocab.txt:46: special token [SEP] already defined on line 4"},
      {"vocab_no_unk", "vocab.txt: the vocabulary has no unknown token [UNK]"},
      {"vocab_no_cls", "vocab.txt: the vocabulary has no [CLS]"},
      {"vocab_latin1", "vocab.txt:31: not valid UTF-8 (byte 0xE9); save the file as UTF-8"},
      {"vocab_empty", "vocab.txt: the file is empty; it must have one piece a line"},
      {"json_added_wrong_id", "tokenizer.json: added token [MASK] has id 9, vocabulary has 4"},
      {"json_added_gap", "tokenizer.json: added token <far> has id 60, the vocabulary ends at 44"},
      {"json_duplicate_id", "tokenizer.json: tokens \"world\" and \"World\" share id 16"},
      {"json_duplicate_key", "tokenizer.json: model.vocab has \"world\" twice"},
      {"json_no_unk", "tokenizer.json: the vocabulary has no unknown token [UNK]"},
      {"json_roberta_post",
       "tokenizer.json: post_processor RobertaProcessing is not supported (TemplateProcessing or "
       "BertProcessing)"},
      {"json_sequence_normalizer",
       "tokenizer.json: normalizer Sequence is not supported (BertNormalizer)"},
      {"json_whitespace_pre",
       "tokenizer.json: pre_tokenizer Whitespace is not supported (BertPreTokenizer)"},
      {"json_bpe", "tokenizer.json: model type BPE is not supported (WordPiece)"},
      {"json_unigram", "tokenizer.json: model type Unigram is not supported (WordPiece)"},
      {"json_wordlevel", "tokenizer.json: model type WordLevel is not supported (WordPiece)"},
      {"json_version_2", "tokenizer.json: version 2.0 is not supported (1.0)"},
      {"json_no_model", "tokenizer.json: key model is missing"},
      {"json_no_vocab", "tokenizer.json: key model.vocab is missing"},
      {"json_cut", "tokenizer.json: not valid JSON at byte 900"},
      {"json_empty", "tokenizer.json: not valid JSON: the file is empty"},
      {"json_negative_id",
       "tokenizer.json: id -1 of neg is not a token id (a whole number below 4194304)"},
      {"json_string_id",
       "tokenizer.json: id \"7\" of str is not a token id (a whole number below 4194304)"},
      {"json_extra_top", "tokenizer.json: unknown key comment at the top level"},
      {"config_broken_json", "tokenizer_config.json: not valid JSON at byte 21"},
      {"config_string_bool", "tokenizer_config.json: do_lower_case must be true or false"},
      {"config_other_class",
       "tokenizer_config.json: tokenizer_class RobertaTokenizer is not supported (BertTokenizer or "
       "DistilBertTokenizer)"},
  };
  for (const auto& [id, message] : errors)
    CHECK(error_of(folders + id) == folders + id + "/" + message);
  CHECK(error_of(folders + "nothing") ==
        folders + "nothing: no vocab.txt or tokenizer.json in the folder");
}

TEST_CASE("what was decided while reading is told in notes") {
  const std::pair<const char*, const char*> notes[] = {
      {"vocab_only",
       "vocab.txt: do_lower_case is not given; the vocabulary has cased pieces, so case is kept"},
      {"vocab_blank_last_line",
       "vocab.txt: 1 blank line at the end ignored, the vocabulary has 45 pieces"},
      {"vocab_blank_inside",
       "vocab.txt:21: the blank line keeps id 20, so that later ids do not shift"},
      {"vocab_duplicate",
       "vocab.txt:46: \"hello\" is already on line 6; the last line counts (id 45)"},
      {"vocab_bom", "vocab.txt: a byte order mark was dropped"},
      {"json_and_other_vocab", "vocab.txt: it differs from tokenizer.json, which counts"},
      {"json_no_post", "tokenizer.json: it has no post_processor, so no special tokens are added"},
  };
  for (const auto& [id, note] : notes) {
    const auto loaded = load_tokenizer(folders + id);
    REQUIRE(loaded.notes.size() == 1);
    CHECK(loaded.notes[0] == folders + id + "/" + note);
  }
}

TEST_CASE("a tokenizer that was saved gives the same ids when it is loaded again") {
  const Cases cases;
  // One of each kind: every file is flushed to the disk, which takes its time.
  for (const std::string id : {"vocab_config_lower",
                               "vocab_config_cased",
                               "vocab_lower_keep_accents",
                               "vocab_no_chinese",
                               "vocab_blank_inside",
                               "vocab_duplicate",
                               "config_added_decoder",
                               "config_special_map",
                               "config_max_length_8",
                               "config_left",
                               "json_added",
                               "json_added_strip",
                               "json_gap",
                               "json_prefix",
                               "json_max_chars_5",
                               "json_no_clean",
                               "json_no_post",
                               "json_no_normalizer",
                               "json_cased_strip_true",
                               "json_no_added_tokens"}) {
    CAPTURE(id);
    const Tokenizer tokenizer = load_tokenizer(folders + id).tokenizer;
    const TemporaryFolder folder;
    save_tokenizer(tokenizer, folder.path.string());
    const LoadedTokenizer again = load_tokenizer(folder.path.string());
    CHECK(ids_of(again.tokenizer, cases.texts) == ids_of(tokenizer, cases.texts));
    CHECK(again.tokenizer.config().model_max_length == tokenizer.config().model_max_length);
    CHECK(again.tokenizer.config().added_tokens == tokenizer.config().added_tokens);
    // vocab.txt alone says the same where BERT's settings are in use.
    if (id.starts_with("vocab_") || id.starts_with("config_")) {
      std::filesystem::remove(folder.path / "tokenizer.json");
      const auto from_vocab = load_tokenizer(folder.path.string());
      CHECK(ids_of(from_vocab.tokenizer, cases.texts) == ids_of(tokenizer, cases.texts));
    }
  }
}

TEST_CASE("saving into a folder that does not exist is an error that names the file") {
  const Tokenizer tokenizer = load_tokenizer(folders + "json_only").tokenizer;
  CHECK_THROWS_WITH_AS(save_tokenizer(tokenizer, "/no/such/folder"),
                       doctest::Contains("/no/such/folder/vocab.txt"), Error);
}

}  // namespace
}  // namespace minim::text
