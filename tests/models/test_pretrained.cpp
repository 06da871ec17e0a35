#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/file.h"
#include "tests/models/distilbert_tiny.h"

// from_pretrained on the file layouts that occur in the wild, against what transformers reports of
// the same folders, and where minim is stricter.
using namespace minim;
using namespace minim::test;
using nlohmann::json;
using Names = std::vector<std::string>;

namespace {

const json& legacy() {
  static const json cases = json::parse(read_whole_file(tiny + "/legacy/cases.json"));
  return cases;
}

std::string folder_of(const std::string& name) {
  return tiny + "/legacy/" + name;
}

PackedBatch legacy_batch() {
  const auto tensor_of = [](const json& rows) {
    std::vector<int64_t> values;
    for (const json& row : rows)
      for (const json& value : row)
        values.push_back(value);
    return Tensor::from(values, {int64_t(rows.size()), int64_t(rows[0].size())});
  };
  return packed({.input_ids = tensor_of(legacy()["input_ids"]),
                 .attention_mask = tensor_of(legacy()["attention_mask"])});
}

double worst_difference_to(const Tensor& x, const json& rows) {
  std::vector<double> values;
  for (const json& row : rows)
    for (const json& value : row)
      values.push_back(value);
  return worst_difference(x, Tensor::from(values, {int64_t(values.size())}));
}

Names sorted(Names names) {
  std::sort(names.begin(), names.end());
  return names;
}

std::string load_error(const std::string& name, const LoadOptions& options = {}) {
  return error_of(
      [&] { DistilBertForSequenceClassification::from_pretrained(folder_of(name), options); });
}

// What must be allowed before minim loads the folder as transformers does.
LoadOptions permissive(const std::string& folder, const json& load) {
  LoadOptions options;
  options.allow_missing_body = folder == "gamma_beta_everywhere" ||
                               folder == "missing_body_tensor" || folder == "more_layers_in_config";
  options.drop_extra_layers = folder == "fewer_layers_in_config";
  options.strip_module_prefix = folder == "module_prefix";
  const json asked = load["options"];
  if (asked.contains("num_labels")) options.labels = std::stoi(std::string(asked["num_labels"]));
  options.ignore_mismatched_sizes = asked.contains("ignore_mismatched_sizes");
  return options;
}

}  // namespace

TEST_CASE("the 24 legacy folders load as in transformers: logits, new and dropped tensors") {
  const PackedBatch batch = legacy_batch();
  int64_t with_logits = 0, folders = 0;
  for (const json& entry : legacy()["cases"]) {
    const std::string name = entry["folder"];
    CAPTURE(name);
    ++folders;
    for (const json& load : entry["loads"]) {
      if (load["class"] != "DistilBertForSequenceClassification" || load.contains("raises"))
        continue;
      const LoadOptions options = permissive(name, load);
      CAPTURE(load["options"].dump());
      LoadReport report;
      auto model =
          DistilBertForSequenceClassification::from_pretrained(folder_of(name), options, &report);
      model.eval();
      CHECK(model.config.num_labels() == load["num_labels"]);

      // minim strips "module.", so that nothing is missing.
      const bool stripped = name == "module_prefix";
      Names renewed = stripped ? Names() : Names(load["missing"]);
      for (const json& mismatched : load["mismatched"])
        renewed.push_back(mismatched.is_array() ? mismatched[0] : mismatched);
      CHECK(sorted(report.initialised) == sorted(renewed));
      CHECK(sorted(report.dropped) == sorted(stripped ? Names() : Names(load["unexpected"])));
      CHECK(report.loaded == int64_t(model.parameters().size() - renewed.size()));

      if (load.contains("logits")) {
        ++with_logits;
        // transformers computes in the stored dtype, minim in f32 from the same numbers: half
        // precision has 11 and bfloat16 8 significant bits, logits are below 1.
        const std::string dtype = load["dtype"];
        const double allowed = dtype == "float16" ? 2e-3 : dtype == "bfloat16" ? 2e-2 : 2e-6;
        CHECK(worst_difference_to(model.forward(batch), load["logits"]) < allowed);
      }
    }
  }
  CHECK(folders == 24);
  CHECK(with_logits >= 12);
}

TEST_CASE("bare bodies load from files with and without prefix and head") {
  for (const json& entry : legacy()["cases"])
    for (const json& load : entry["loads"]) {
      if (load["class"] != "DistilBertModel") continue;
      const std::string name = entry["folder"];
      CAPTURE(name);
      LoadReport report;
      const auto model = DistilBertModel::from_pretrained(folder_of(name), {}, &report);
      model.eval();
      CHECK(report.initialised.empty());
      CHECK(sorted(report.dropped) == sorted(load["unexpected"]));
      const Tensor row = slice(model.forward(legacy_batch()), 0, 0, 1);
      json expected = load["last_hidden_state_row_0"];
      if (!expected[0].is_array()) expected = json::array({expected});
      CHECK(worst_difference_to(row, json::array({expected[0]})) < 2e-6);
    }
}

TEST_CASE("a plain folder loads completely and without notes") {
  LoadReport report;
  DistilBertForSequenceClassification::from_pretrained(folder_of("plain"), {}, &report);
  CHECK(report.summary() == "40 tensors loaded, 0 new, 0 dropped");
  CHECK(report.notes.empty());
}

TEST_CASE("a new head is announced as expected; its weights come from the seed") {
  LoadReport report;
  const auto model = DistilBertForSequenceClassification::from_pretrained(
      folder_of("body_only"), {.labels = 5, .seed = 9}, &report);
  CHECK(report.summary() == "36 tensors loaded, 4 new, 0 dropped");
  CHECK(report.notes ==
        Names{"new weights: classifier.bias, classifier.weight, pre_classifier.bias, "
              "pre_classifier.weight; that is expected when a pretrained body gets a new head: "
              "train it before use"});
  CHECK(model.classifier.weight.shape() == Shape{5, 8});
  const auto again = DistilBertForSequenceClassification::from_pretrained(
      folder_of("prefixed_body_only"), {.labels = 5, .seed = 9});
  CHECK(same_bits(model.classifier.weight, again.classifier.weight));
  CHECK(model.config.labels.back() == "LABEL_4");
}

TEST_CASE("the head of a masked LM is dropped, and said so") {
  LoadReport report;
  DistilBertForSequenceClassification::from_pretrained(folder_of("masked_lm"), {}, &report);
  CHECK(report.summary() == "36 tensors loaded, 4 new, 5 dropped");
  REQUIRE(report.notes.size() == 2);
  CHECK(report.notes[1] ==
        "not used by this model: vocab_layer_norm.bias, vocab_layer_norm.weight, "
        "vocab_projector.bias, vocab_transform.bias, vocab_transform.weight");
}

TEST_CASE("whatever would leave a random body is refused by name") {
  const std::string at = "/model.safetensors: ";
  CHECK(load_error("missing_body_tensor") ==
        folder_of("missing_body_tensor") + at +
            "weights of the body are missing (distilbert.transformer.layer.1.ffn.lin2.weight); "
            "with allow_missing_body they are initialised anew");
  CHECK(load_error("module_prefix") ==
        folder_of("module_prefix") + at +
            "tensor names start with \"module.\" (module.classifier.bias), as DataParallel saves "
            "them; load with strip_module_prefix");
  const std::string first_eight =
      "attention.k_lin.bias, distilbert.transformer.layer.{0}.attention.k_lin.weight, "
      "distilbert.transformer.layer.{0}.attention.out_lin.bias, "
      "distilbert.transformer.layer.{0}.attention.out_lin.weight, "
      "distilbert.transformer.layer.{0}.attention.q_lin.bias, "
      "distilbert.transformer.layer.{0}.attention.q_lin.weight, "
      "distilbert.transformer.layer.{0}.attention.v_lin.bias, "
      "distilbert.transformer.layer.{0}.attention.v_lin.weight and 8 more";
  CHECK(load_error("more_layers_in_config") ==
        folder_of("more_layers_in_config") + at +
            fmt::format(fmt::runtime("weights of the body are missing "
                                     "(distilbert.transformer.layer.{0}." +
                                     first_eight +
                                     "); with allow_missing_body they are "
                                     "initialised anew"),
                        2));
  CHECK(load_error("fewer_layers_in_config") ==
        folder_of("fewer_layers_in_config") + at +
            fmt::format(fmt::runtime("the file has more layers than the 1 of config.json "
                                     "(distilbert.transformer.layer.{0}." +
                                     first_eight + "); with drop_extra_layers they are left out"),
                        1));
  CHECK(load_error("gamma_beta_everywhere").find("weights of the body are missing (") !=
        std::string::npos);
}

TEST_CASE("tensors of another shape are listed with both shapes") {
  const std::string text =
      "/model.safetensors: classifier.bias is [2] in the file, [3] in the model, classifier.weight "
      "is [2, 8] in the file, [3, 8] in the model; with ignore_mismatched_sizes these are "
      "initialised anew";
  CHECK(load_error("three_labels_in_config") == folder_of("three_labels_in_config") + text);
  CHECK(load_error("plain", {.labels = 3}) == folder_of("plain") + text);
  CHECK(load_error("wrong_dim_config") ==
        folder_of("wrong_dim_config") + "/config.json: n_heads 3 must divide dim 8");
}

TEST_CASE("another number of labels than config.json names is noted") {
  LoadReport report;
  DistilBertForSequenceClassification::from_pretrained(folder_of("three_labels_in_config"),
                                                       {.labels = 2}, &report);
  CHECK(report.notes == Names{folder_of("three_labels_in_config") +
                              ": 2 labels asked for, config.json names 3; the names become "
                              "LABEL_0 .. LABEL_1"});
}

TEST_CASE("absurd sizes in config.json are refused before they are allocated") {
  TemporaryFolder folder;
  std::filesystem::copy(folder_of("plain"), folder.path(),
                        std::filesystem::copy_options::recursive);
  json config = json::parse(read_whole_file(folder / "config.json"));
  for (const auto& [key, size] :
       {std::pair("vocab_size", 2147483647), std::pair("dim", 2147483646),
        std::pair("hidden_dim", 2147483647), std::pair("max_position_embeddings", 2147483647),
        std::pair("n_layers", 10000)}) {
    const auto& which = key;
    CAPTURE(which);
    json changed = config;
    changed[key] = size;
    write_whole_file(folder / "config.json", changed.dump());
    const std::string error =
        error_of([&] { DistilBertForSequenceClassification::from_pretrained(folder.path()); });
    CHECK(error.starts_with(folder / "model.safetensors"));
  }
}

TEST_CASE("half-precision and double files convert to the dtype asked for") {
  for (const std::string name : {"float16", "bfloat16_undeclared", "float64", "plain"}) {
    CAPTURE(name);
    for (const DType dtype : {DType::f32, DType::f64}) {
      const auto model =
          DistilBertForSequenceClassification::from_pretrained(folder_of(name), {.dtype = dtype});
      for (const auto& [parameter, tensor] : model.parameters())
        REQUIRE(tensor.dtype() == dtype);
    }
  }
  // The values of the half file are those of the plain one, rounded: 11 bits, relative 2^-11.
  const auto plain = DistilBertForSequenceClassification::from_pretrained(folder_of("plain"));
  const auto half = DistilBertForSequenceClassification::from_pretrained(folder_of("float16"));
  const auto a = plain.pre_classifier.weight.to_vector<double>();
  const auto b = half.pre_classifier.weight.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i)
    CHECK(std::abs(a[i] - b[i]) <= std::abs(a[i]) / 2048);
}

TEST_CASE("mapped weights give the same logits, and training them leaves the file alone") {
  const std::string file = tiny + "/model.safetensors";
  const std::string before = read_whole_file(file);
  const auto mapped =
      DistilBertForSequenceClassification::from_pretrained(tiny, {.map_weights = true});
  mapped.eval();
  CHECK(same_bits(mapped.forward(packed("main")), tiny_model().forward(packed("main"))));
  fill(mapped.classifier.weight, 1);
  CHECK(read_whole_file(file) == before);
}

TEST_CASE("a stored sinusoidal table is loaded, not computed anew") {
  TemporaryFolder folder;
  std::filesystem::copy(folder_of("plain"), folder.path(),
                        std::filesystem::copy_options::recursive);
  json config = json::parse(read_whole_file(folder / "config.json"));
  config["sinusoidal_pos_embds"] = true;
  write_whole_file(folder / "config.json", config.dump());
  const auto model = DistilBertForSequenceClassification::from_pretrained(folder.path());
  const auto plain = DistilBertForSequenceClassification::from_pretrained(folder_of("plain"));
  CHECK(same_bits(model.distilbert.embeddings.position_embeddings.weight,
                  plain.distilbert.embeddings.position_embeddings.weight));
  CHECK_FALSE(model.distilbert.embeddings.position_embeddings.weight.requires_grad());
}

TEST_CASE("a folder that is incomplete or damaged is refused in one sentence") {
  TemporaryFolder folder;
  const auto error = [&] {
    return error_of([&] { DistilBertForSequenceClassification::from_pretrained(folder.path()); });
  };
  CHECK(error() == folder / "config.json: cannot be opened: No such file or directory");
  std::filesystem::copy_file(tiny + "/config.json", folder / "config.json");
  CHECK(error() == folder.path() +
                       ": has no weights: looked for model.safetensors, "
                       "model.safetensors.index.json, pytorch_model.bin and "
                       "pytorch_model.bin.index.json");
  const std::string whole = read_whole_file(tiny + "/model.safetensors");
  for (const size_t size : {size_t(0), size_t(7), size_t(500), whole.size() - 1}) {
    CAPTURE(size);
    write_whole_file(folder / "model.safetensors", whole.substr(0, size));
    CHECK(error().starts_with(folder / "model.safetensors: "));
  }
}
