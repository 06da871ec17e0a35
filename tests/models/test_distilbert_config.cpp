#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

#include "core/file.h"
#include "tests/models/distilbert_tiny.h"

using namespace minim;
using namespace minim::test;
using nlohmann::json;

namespace {

// A config read from {"model_type": "distilbert"} and the given members, which must be accepted
// without a note.
DistilBertConfig read(const std::string& members = "") {
  std::vector<std::string> notes;
  const auto config = DistilBertConfig::from_json(
      "{\"model_type\": \"distilbert\"" + (members.empty() ? "" : ", " + members) + "}", "c.json",
      notes);
  CHECK(notes.empty());
  return config;
}

std::string error_with(const std::string& members) {
  return error_of([&] { read(members); });
}

// Folders of the data with a config.json that is right.
std::vector<std::string> good_folders() {
  std::vector<std::string> folders = {tiny};
  for (const auto& entry : std::filesystem::directory_iterator(tiny + "/legacy"))
    if (entry.is_directory() && entry.path().filename() != "wrong_dim_config")
      folders.push_back(entry.path().string());
  CHECK(folders.size() == 24);
  return folders;
}

}  // namespace

TEST_CASE("a config.json that transformers 5 wrote comes back byte for byte") {
  for (const std::string& folder : {tiny, tiny + "/legacy/plain", tiny + "/legacy/sharded"}) {
    CAPTURE(folder);
    std::vector<std::string> notes;
    const auto config = DistilBertConfig::from_pretrained(folder, notes);
    CHECK(config.to_json() == read_whole_file(folder + "/config.json"));
    CHECK(notes.empty());
  }
}

TEST_CASE("older files keep every key and value; the writer only adds and renames") {
  const std::map<std::string, std::string> renamed = {{"num_hidden_layers", "n_layers"},
                                                      {"num_attention_heads", "n_heads"},
                                                      {"hidden_size", "dim"}};
  // Of the folder that is saved, not of the one that was read.
  const std::set<std::string> written_anew = {"architectures", "dtype"};
  for (const std::string& folder : good_folders()) {
    CAPTURE(folder);
    std::vector<std::string> notes;
    const auto config = DistilBertConfig::from_pretrained(folder, notes);
    const json before = json::parse(read_whole_file(folder + "/config.json"));
    const json after = json::parse(config.to_json());
    for (const auto& [key, value] : before.items()) {
      const auto& which = key;
      CAPTURE(which);
      const auto to = renamed.find(key);
      const std::string name = to == renamed.end() ? key : to->second;
      REQUIRE(after.contains(name));
      if (!written_anew.contains(key)) CHECK(after[name] == value);
    }
    CHECK(after["architectures"] == json::array({"DistilBertForSequenceClassification"}));
    // Reading what was written and writing it again changes nothing.
    CHECK(DistilBertConfig::from_json(config.to_json(), "again", notes).to_json() ==
          config.to_json());
  }
}

TEST_CASE("defaults are Hugging Face's, and an absent id2label means two labels") {
  const DistilBertConfig config = read();
  CHECK(config.vocab_size == 30522);
  CHECK(config.max_position_embeddings == 512);
  CHECK_FALSE(config.sinusoidal_pos_embds);
  CHECK(config.n_layers == 6);
  CHECK(config.n_heads == 12);
  CHECK(config.dim == 768);
  CHECK(config.hidden_dim == 3072);
  CHECK(config.dropout == 0.1);
  CHECK(config.attention_dropout == 0.1);
  CHECK(config.activation == "gelu");
  CHECK(config.initializer_range == 0.02);
  CHECK(config.qa_dropout == 0.1);
  CHECK(config.seq_classif_dropout == 0.2);
  CHECK(config.pad_token_id == 0);
  CHECK(config.tie_word_embeddings);
  CHECK(config.problem_type.empty());
  CHECK(config.labels == std::vector<std::string>{"LABEL_0", "LABEL_1"});
  CHECK_FALSE(json::parse(config.to_json()).contains("id2label"));
}

TEST_CASE("every key is read") {
  const DistilBertConfig config = read(
      R"("vocab_size": 11, "max_position_embeddings": 12, "sinusoidal_pos_embds": true,
         "n_layers": 3, "n_heads": 2, "dim": 8, "hidden_dim": 16, "dropout": 0.25,
         "attention_dropout": 0, "activation": "relu", "initializer_range": 1e-3,
         "qa_dropout": 0.5, "seq_classif_dropout": 0.125, "pad_token_id": 10,
         "tie_word_embeddings": false, "problem_type": "multi_label_classification")");
  CHECK(config.vocab_size == 11);
  CHECK(config.max_position_embeddings == 12);
  CHECK(config.sinusoidal_pos_embds);
  CHECK(config.n_layers == 3);
  CHECK(config.n_heads == 2);
  CHECK(config.dim == 8);
  CHECK(config.hidden_dim == 16);
  CHECK(config.dropout == 0.25);
  CHECK(config.attention_dropout == 0);
  CHECK(config.activation == "relu");
  CHECK(config.initializer_range == 1e-3);
  CHECK(config.qa_dropout == 0.5);
  CHECK(config.seq_classif_dropout == 0.125);
  CHECK(config.pad_token_id == 10);
  CHECK_FALSE(config.tie_word_embeddings);
  CHECK(config.problem_type == "multi_label_classification");
}

TEST_CASE("aliases are read, null is as good as absent") {
  const DistilBertConfig config = read(
      R"("num_hidden_layers": 3, "num_attention_heads": 4, "hidden_size": 64, "dropout": null)");
  CHECK(config.n_layers == 3);
  CHECK(config.n_heads == 4);
  CHECK(config.dim == 64);
  CHECK(config.dropout == 0.1);
  const json written = json::parse(config.to_json());
  CHECK_FALSE(written.contains("num_hidden_layers"));
  CHECK(written["n_layers"] == 3);
}

TEST_CASE("unknown keys are written back as they were") {
  const json written = json::parse(
      read(R"("tie_weights_": true, "pruned_heads": {}, "nested": {"b": [1, null], "a": "ü"},
             "bos_token_id": 101, "eos_token_id": 102, "_name_or_path": "x")")
          .to_json());
  CHECK(written["tie_weights_"] == true);
  CHECK(written["pruned_heads"] == json::object());
  CHECK(written["nested"] == json::parse(R"({"b": [1, null], "a": "ü"})"));
  CHECK(written["bos_token_id"] == 101);
  CHECK(written["eos_token_id"] == 102);
  CHECK(written["_name_or_path"] == "x");
}

TEST_CASE("label names come in the order of their ids and are written so") {
  DistilBertConfig config = read(R"("id2label": {"1": "yes", "0": "no", "2": "maybe"},
                                    "label2id": {"yes": 1, "no": 0, "maybe": 2})");
  CHECK(config.labels == std::vector<std::string>{"no", "yes", "maybe"});
  const json written = json::parse(config.to_json());
  CHECK(written["id2label"] == json::parse(R"({"0": "no", "1": "yes", "2": "maybe"})"));
  CHECK(written["label2id"] == json::parse(R"({"no": 0, "yes": 1, "maybe": 2})"));

  // Ids are sorted as numbers, as Python sorts them.
  config.set_num_labels(11);
  const std::string text = config.to_json();
  CHECK(text.find("\"2\": \"LABEL_2\"") < text.find("\"10\": \"LABEL_10\""));
  CHECK(read(R"("id2label": {"0": "LABEL_0"})").num_labels() == 1);
}

TEST_CASE("num_labels wins over id2label, with a note") {
  std::vector<std::string> notes;
  const auto config = DistilBertConfig::from_json(
      R"({"model_type": "distilbert", "num_labels": 3, "id2label": {"0": "a", "1": "b"}})",
      "c.json", notes);
  CHECK(config.labels == std::vector<std::string>{"LABEL_0", "LABEL_1", "LABEL_2"});
  CHECK(notes == std::vector<std::string>{
                     "c.json: num_labels 3 differs from the 2 names of id2label; the names become "
                     "LABEL_0 .. LABEL_2"});
  // The same number keeps the names.
  CHECK(read(R"("num_labels": 2, "id2label": {"0": "a", "1": "b"})").labels[1] == "b");
}

TEST_CASE("the dtype is that of the weights") {
  for (const auto& [dtype, name] :
       {std::pair(DType::f32, "float32"), std::pair(DType::f64, "float64"),
        std::pair(DType::f16, "float16"), std::pair(DType::bf16, "bfloat16")})
    CHECK(json::parse(read(R"("torch_dtype": "float32")").to_json(dtype))["dtype"] == name);
}

TEST_CASE("wrong values are refused in one sentence with file and key") {
  const std::pair<const char*, const char*> cases[] = {
      {R"("activation": "gleu")",
       "c.json: activation: \"gleu\" is unknown; known are gelu, gelu_new, gelu_pytorch_tanh, "
       "gelu_fast, quick_gelu, relu, silu, swish, tanh, sigmoid, mish"},
      {R"("n_heads": 5)", "c.json: n_heads 5 must divide dim 768"},
      {R"("n_layers": 0)", "c.json: n_layers must be 1 to 2^31 - 1, is 0"},
      {R"("n_layers": 10001)", "c.json: n_layers must be at most 10000, is 10001"},
      {R"("vocab_size": 4294967296)", "c.json: vocab_size must be 1 to 2^31 - 1, is 4294967296"},
      {R"("dim": 768.5)", "c.json: dim must be a whole number, is 768.5"},
      {R"("num_hidden_layers": "6")", "c.json: n_layers must be a whole number, is \"6\""},
      {R"("dropout": "0.1")", "c.json: dropout must be a number, is \"0.1\""},
      {R"("dropout": 1)", "c.json: dropout must be at least 0 and below 1, is 1"},
      {R"("attention_dropout": -0.1)",
       "c.json: attention_dropout must be at least 0 and below 1, is -0.1"},
      {R"("sinusoidal_pos_embds": 1)", "c.json: sinusoidal_pos_embds must be true or false, is 1"},
      {R"("activation": 3)", "c.json: activation must be a string, is 3"},
      {R"("initializer_range": -1)", "c.json: initializer_range must not be negative, is -1"},
      {R"("pad_token_id": 30522)", "c.json: pad_token_id 30522 is outside a vocabulary of 30522"},
      {R"("problem_type": "ranking")",
       "c.json: problem_type \"ranking\" must be regression, single_label_classification or "
       "multi_label_classification"},
      {R"("id2label": ["a", "b"])", "c.json: id2label must be an object of id to name"},
      {R"("id2label": {})", "c.json: id2label must be an object of id to name"},
      {R"("id2label": {"0": "a", "2": "b"})",
       "c.json: id2label must map 0 .. 1 to names, has \"2\": \"b\""},
      {R"("id2label": {"0": "a", "x": "b"})",
       "c.json: id2label must map 0 .. 1 to names, has \"x\": \"b\""},
      {R"("id2label": {"0": 7})", "c.json: id2label must map 0 .. 0 to names, has \"0\": 7"},
      {R"("id2label": {"0": "a", "00": "b"})",
       "c.json: id2label must map 0 .. 1 to names, has \"00\": \"b\""},
      {R"("num_labels": 0)", "config: a classifier needs at least 1 label, got 0"},
  };
  for (const auto& [members, text] : cases)
    CHECK(error_with(members) == text);
}

TEST_CASE("what is no DistilBERT config is refused") {
  std::vector<std::string> notes;
  const auto error_in = [&](const char* text) {
    return error_of([&] { DistilBertConfig::from_json(text, "c.json", notes); });
  };
  CHECK(error_in(R"({"model_type": "bert"})") ==
        "c.json: model_type \"bert\" is not supported; minim reads \"distilbert\"");
  CHECK(error_in("{}") == "c.json: model_type \"\" is not supported; minim reads \"distilbert\"");
  CHECK(error_in("[1]") == "c.json: must hold a JSON object");
  CHECK(error_in("{\"model_type\": ").starts_with("c.json: is not JSON ("));
  CHECK(error_of([&] { DistilBertConfig::from_pretrained("/nonexistent/folder", notes); }) ==
        "/nonexistent/folder: cannot be opened: No such file or directory");
}

TEST_CASE("presets are sizes by name") {
  CHECK(DistilBertConfig::preset("base").dim == 768);
  CHECK(DistilBertConfig::preset("small").n_layers == 2);
  CHECK(DistilBertConfig::preset("tiny").hidden_dim == 512);
  CHECK(error_of([] { DistilBertConfig::preset("huge"); }) ==
        "preset: \"huge\" is unknown; there are tiny, small and base");
}
