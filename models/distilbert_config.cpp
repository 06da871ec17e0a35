#include "models/distilbert_config.h"

#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "nn/activation.h"

namespace minim::models {

namespace {

using nlohmann::json;

// Takes keys out of a config.json; what is left at the end is not ours.
class Reader {
 public:
  Reader(json object, const std::string& source) : object_(std::move(object)), source_(source) {}

  // The first of the names that is present and not null; all of them are taken.
  json take(std::initializer_list<const char*> names) {
    json found;
    for (const char* name : names) {
      const auto it = object_.find(name);
      if (it == object_.end()) continue;
      if (found.is_null()) found = *it;
      object_.erase(it);
    }
    return found;
  }

  void number(std::initializer_list<const char*> names, int64_t& value) {
    const json found = take(names);
    if (found.is_null()) return;
    check(found.is_number_integer(), "{}: {} must be a whole number, is {}", source_,
          *names.begin(), found.dump());
    value = found.get<int64_t>();
  }
  void number(std::initializer_list<const char*> names, double& value) {
    const json found = take(names);
    if (found.is_null()) return;
    check(found.is_number(), "{}: {} must be a number, is {}", source_, *names.begin(),
          found.dump());
    value = found.get<double>();
  }
  void flag(const char* name, bool& value) {
    const json found = take({name});
    if (found.is_null()) return;
    check(found.is_boolean(), "{}: {} must be true or false, is {}", source_, name, found.dump());
    value = found.get<bool>();
  }
  void text(const char* name, std::string& value) {
    const json found = take({name});
    if (found.is_null()) return;
    check(found.is_string(), "{}: {} must be a string, is {}", source_, name, found.dump());
    value = found.get<std::string>();
  }

  const json& rest() const { return object_; }

 private:
  json object_;
  const std::string& source_;
};

// Names in the order of their ids, from {"0": "a", "1": "b"}.
std::vector<std::string> read_labels(const json& id2label, const std::string& source) {
  check(id2label.is_object() && !id2label.empty(), "{}: id2label must be an object of id to name",
        source);
  std::vector<std::string> labels(id2label.size());
  std::vector<bool> seen(labels.size());
  for (const auto& [key, name] : id2label.items()) {
    size_t id = labels.size();
    if (!key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos)
      id = std::stoul(key);
    check(id < labels.size() && !seen[id] && name.is_string(),
          "{}: id2label must map 0 .. {} to names, has \"{}\": {}", source, labels.size() - 1, key,
          name.dump());
    labels[id] = name.get<std::string>();
    seen[id] = true;
  }
  return labels;
}

// What config.json calls a dtype.
const char* hf_name_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "float64";
    case DType::f16:
      return "float16";
    case DType::bf16:
      return "bfloat16";
    default:
      return "float32";
  }
}

std::vector<std::string> default_labels(int64_t n) {
  std::vector<std::string> labels;
  for (int64_t i = 0; i < n; ++i)
    labels.push_back(fmt::format("LABEL_{}", i));
  return labels;
}

}  // namespace

void DistilBertConfig::set_num_labels(int64_t n) {
  check(n >= 1, "config: a classifier needs at least 1 label, got {}", n);
  if (n != num_labels()) labels = default_labels(n);
}

void DistilBertConfig::validate(std::string_view source) const {
  const std::pair<const char*, int64_t> sizes[] = {
      {"vocab_size", vocab_size},
      {"max_position_embeddings", max_position_embeddings},
      {"n_layers", n_layers},
      {"n_heads", n_heads},
      {"dim", dim},
      {"hidden_dim", hidden_dim}};
  // 2^31 - 1 bounds every product of two sizes by an int64.
  for (const auto& [name, size] : sizes)
    check(size >= 1 && size <= 0x7fffffff, "{}: {} must be 1 to 2^31 - 1, is {}", source, name,
          size);
  // Every layer is an object even before its weights are found missing.
  check(n_layers <= 10000, "{}: n_layers must be at most 10000, is {}", source, n_layers);
  check(dim % n_heads == 0, "{}: n_heads {} must divide dim {}", source, n_heads, dim);
  const std::pair<const char*, double> rates[] = {{"dropout", dropout},
                                                  {"attention_dropout", attention_dropout},
                                                  {"qa_dropout", qa_dropout},
                                                  {"seq_classif_dropout", seq_classif_dropout}};
  for (const auto& [name, rate] : rates)
    check(rate >= 0 && rate < 1, "{}: {} must be at least 0 and below 1, is {}", source, name,
          rate);
  check(initializer_range >= 0, "{}: initializer_range must not be negative, is {}", source,
        initializer_range);
  check(pad_token_id >= 0 && pad_token_id < vocab_size,
        "{}: pad_token_id {} is outside a vocabulary of {}", source, pad_token_id, vocab_size);
  try {
    const nn::Activation known(activation);
  } catch (const Error& error) {
    fail("{}: {}", source, error.what());
  }
  check(problem_type.empty() || problem_type == "regression" ||
            problem_type == "single_label_classification" ||
            problem_type == "multi_label_classification",
        "{}: problem_type \"{}\" must be regression, single_label_classification or "
        "multi_label_classification",
        source, problem_type);
}

DistilBertConfig DistilBertConfig::from_json(std::string_view text, const std::string& source,
                                             std::vector<std::string>& notes) {
  json object;
  try {
    object = json::parse(text);
  } catch (const json::exception& error) {
    fail("{}: is not JSON ({})", source, error.what());
  }
  check(object.is_object(), "{}: must hold a JSON object", source);
  Reader reader(std::move(object), source);

  DistilBertConfig config;
  std::string model_type;
  reader.text("model_type", model_type);
  check(model_type == "distilbert",
        "{}: model_type \"{}\" is not supported; minim reads \"distilbert\"", source, model_type);
  reader.number({"vocab_size"}, config.vocab_size);
  reader.number({"max_position_embeddings"}, config.max_position_embeddings);
  reader.flag("sinusoidal_pos_embds", config.sinusoidal_pos_embds);
  reader.number({"n_layers", "num_hidden_layers"}, config.n_layers);
  reader.number({"n_heads", "num_attention_heads"}, config.n_heads);
  reader.number({"dim", "hidden_size"}, config.dim);
  reader.number({"hidden_dim"}, config.hidden_dim);
  reader.number({"dropout"}, config.dropout);
  reader.number({"attention_dropout"}, config.attention_dropout);
  reader.text("activation", config.activation);
  reader.number({"initializer_range"}, config.initializer_range);
  reader.number({"qa_dropout"}, config.qa_dropout);
  reader.number({"seq_classif_dropout"}, config.seq_classif_dropout);
  reader.number({"pad_token_id"}, config.pad_token_id);
  reader.flag("tie_word_embeddings", config.tie_word_embeddings);
  reader.text("problem_type", config.problem_type);

  if (const json id2label = reader.take({"id2label"}); !id2label.is_null())
    config.labels = read_labels(id2label, source);
  reader.take({"label2id"});  // the inverse, written anew
  int64_t num_labels = config.num_labels();
  reader.number({"num_labels"}, num_labels);
  if (num_labels != config.num_labels()) {
    notes.push_back(
        fmt::format("{}: num_labels {} differs from the {} names of id2label; the names "
                    "become LABEL_0 .. LABEL_{}",
                    source, num_labels, config.num_labels(), num_labels - 1));
    config.set_num_labels(num_labels);
  }
  // Written anew for what is saved.
  reader.take({"architectures"});
  reader.take({"dtype", "torch_dtype"});
  config.other = reader.rest().dump();
  config.validate(source);
  return config;
}

DistilBertConfig DistilBertConfig::from_pretrained(const std::string& path,
                                                   std::vector<std::string>& notes) {
  struct stat status {};
  const bool is_folder = stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  const std::string file = is_folder ? path + "/config.json" : path;
  return from_json(read_whole_file(file), file, notes);
}

DistilBertConfig DistilBertConfig::preset(std::string_view name) {
  DistilBertConfig config;
  if (name == "base") return config;
  config.max_position_embeddings = 128;
  if (name == "tiny") {
    config.n_layers = 2;
    config.n_heads = 2;
    config.dim = 128;
    config.hidden_dim = 512;
  } else if (name == "small") {
    config.n_layers = 2;
    config.n_heads = 4;
    config.dim = 256;
    config.hidden_dim = 1024;
  } else {
    fail("preset: \"{}\" is unknown; there are tiny, small and base", name);
  }
  return config;
}

DistilBertConfig DistilBertConfig::with_overrides(std::string_view changes) const {
  json object = json::parse(to_json());
  while (!changes.empty()) {
    const std::string_view change = changes.substr(0, changes.find(','));
    changes.remove_prefix(std::min(change.size() + 1, changes.size()));
    const size_t equals = change.find('=');
    const std::string key(change.substr(0, equals));
    check(equals != std::string_view::npos && object.contains(key),
          "config overrides: \"{}\" is no change to a key of config.json, such as dropout=0.2",
          change);
    const std::string_view value = change.substr(equals + 1);
    // What is not JSON by itself, such as relu, is a string.
    object[key] = json::accept(value) ? json::parse(value) : json(value);
  }
  std::vector<std::string> notes;
  return from_json(object.dump(), "config overrides", notes);
}

std::string DistilBertConfig::to_json(DType dtype) const {
  json object = json::parse(other);
  object["model_type"] = "distilbert";
  object["architectures"] = {"DistilBertForSequenceClassification"};
  object["dtype"] = hf_name_of(dtype);
  // Null in Hugging Face's files, unless the one that was read said otherwise.
  object.emplace("bos_token_id", nullptr);
  object.emplace("eos_token_id", nullptr);
  object["vocab_size"] = vocab_size;
  object["max_position_embeddings"] = max_position_embeddings;
  object["sinusoidal_pos_embds"] = sinusoidal_pos_embds;
  object["n_layers"] = n_layers;
  object["n_heads"] = n_heads;
  object["dim"] = dim;
  object["hidden_dim"] = hidden_dim;
  object["dropout"] = dropout;
  object["attention_dropout"] = attention_dropout;
  object["activation"] = activation;
  object["initializer_range"] = initializer_range;
  object["qa_dropout"] = qa_dropout;
  object["seq_classif_dropout"] = seq_classif_dropout;
  object["pad_token_id"] = pad_token_id;
  object["tie_word_embeddings"] = tie_word_embeddings;
  if (!problem_type.empty()) object["problem_type"] = problem_type;
  // Two labels of these names are what readers assume anyway.
  const bool with_labels = labels != default_labels(2);
  if (with_labels)
    for (size_t id = 0; id < labels.size(); ++id) {
      object["id2label"][std::to_string(id)] = labels[id];
      object["label2id"][labels[id]] = id;
    }
  // Ids are sorted as numbers: 2 before 10.
  nlohmann::ordered_json sorted = object;
  if (with_labels) {
    sorted["id2label"] = nlohmann::ordered_json::object();
    for (size_t id = 0; id < labels.size(); ++id)
      sorted["id2label"][std::to_string(id)] = labels[id];
  }
  return sorted.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace minim::models
