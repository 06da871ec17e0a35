#include "models/distilbert.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "core/file.h"
#include "core/random.h"
#include "core/recording.h"
#include "core/safetensors.h"
#include "nn/recompute.h"

namespace minim::models {

namespace {

nn::TransformerBlockOptions block_options(const DistilBertConfig& config) {
  return {.dim = config.dim,
          .heads = config.n_heads,
          .hidden_dim = config.hidden_dim,
          .dropout = float(config.dropout),
          .attention_dropout = float(config.attention_dropout),
          .activation = config.activation};
}

// Builds a model from a folder: `make` gets the config and the options of a Scope that reads it.
template <class Make>
auto load(const std::string& folder, const LoadOptions& options, LoadReport* report, Make make) {
  std::vector<std::string> notes;
  DistilBertConfig config = DistilBertConfig::from_pretrained(folder, notes);
  if (options.labels && *options.labels != config.num_labels()) {
    if (config.labels != DistilBertConfig().labels)
      notes.push_back(
          fmt::format("{}: {} labels asked for, config.json names {}; the names become "
                      "LABEL_0 .. LABEL_{}",
                      folder, *options.labels, config.num_labels(), *options.labels - 1));
    config.set_num_labels(*options.labels);
  }
  // Shared with the model's Scope, which may ask again for parameters that are added later.
  const auto weights =
      std::make_shared<PretrainedWeights>(read_checkpoint(folder), "distilbert", options);
  nn::ModelOptions model_options{.seed = options.seed,
                                 .dtype = options.dtype,
                                 .device = options.device,
                                 .initializer_range = config.initializer_range,
                                 .source = [weights](const std::string& name, const Shape& shape) {
                                   return weights->take(name, shape);
                                 }};
  auto model = make(config, std::move(model_options));
  LoadReport done = weights->finish(config.n_layers);
  if (report != nullptr) {
    done.notes.insert(done.notes.begin(), notes.begin(), notes.end());
    *report = std::move(done);
  }
  return model;
}

}  // namespace

DistilBertEmbeddings::DistilBertEmbeddings(const DistilBertConfig& config, nn::Scope at)
    : Module(at),
      word_embeddings(config.vocab_size, config.dim, at / "word_embeddings", config.pad_token_id),
      position_embeddings(
          config.max_position_embeddings, config.dim, at / "position_embeddings", {},
          config.sinusoidal_pos_embds ? std::optional(nn::Init::sinusoidal()) : std::nullopt),
      layer_norm(config.dim, at / "LayerNorm"),
      dropout(float(config.dropout), at) {
  if (config.sinusoidal_pos_embds) position_embeddings.weight.set_requires_grad(false);
}

Tensor DistilBertEmbeddings::forward(const PackedBatch& batch) const {
  const int64_t most = position_embeddings.weight.size(0);
  const Tensor positions = batch.position_ids.to(Device::cpu());
  int64_t longest = 0;
  for (int32_t position : positions.values<int32_t>()) {
    check(position < most,
          "distilbert: a sequence has {} tokens or more, the model has {} positions; truncate it",
          position + 1, most);
    longest = std::max<int64_t>(longest, position + 1);
  }
  const Tensor words = with_noise(word_embeddings.forward(batch.input_ids), longest);
  return dropout.forward(
      layer_norm.forward(words + position_embeddings.forward(batch.position_ids)));
}

// As transformers does with a batch that is padded to its longest sequence; what lies in the
// padding has no effect there.
Tensor DistilBertEmbeddings::with_noise(const Tensor& words, int64_t longest) const {
  if (!training() || neftune_noise_alpha == 0) return words;
  check(Recording::current() == nullptr,
        "neftune_noise_alpha: is {}, but noise that is drawn anew for each batch cannot be "
        "recorded; must be 0",
        neftune_noise_alpha);
  const double most = neftune_noise_alpha / std::sqrt(double(longest * words.size(1)));
  const Tensor noise = Tensor::empty_like(words);
  const uint64_t draw = generator().take(uint64_t(noise.numel()));
  fill_uniform(noise, -most, most, generator().seed, fmt::format("neftune {}", draw));
  return words + noise;
}

DistilBertModel::DistilBertModel(const DistilBertConfig& config, nn::Scope at)
    : Module(at), embeddings((config.validate(), config), at / "embeddings") {
  for (int64_t i = 0; i < config.n_layers; ++i)
    layer.emplace_back(block_options(config), at / "transformer" / "layer" / i);
}

AttentionRows DistilBertModel::all_rows(const PackedBatch& batch) const {
  const Tensor ends = batch.offsets.view({batch.sequences()}, {1}, 1);
  return {batch.offsets, batch.key_begin, ends};
}

// A block on all tokens.
Tensor DistilBertModel::run(size_t i, const Tensor& x, const AttentionRows& rows) const {
  const nn::TransformerBlock& block = layer[i];
  if (!gradient_checkpointing_ || !training() || i + 1 == layer.size())
    return block.forward(x, x, rows);
  const auto forward = [block, rows](const Tensors& t) { return block.forward(t[0], t[0], rows); };
  return nn::recompute(block, forward, {x});
}

Tensor DistilBertModel::forward(const PackedBatch& batch) const {
  Tensor x = embeddings.forward(batch);
  for (size_t i = 0; i < layer.size(); ++i)
    x = run(i, x, all_rows(batch));
  return x;
}

Tensors DistilBertModel::hidden_states(const PackedBatch& batch) const {
  Tensors states = {embeddings.forward(batch)};
  for (size_t i = 0; i < layer.size(); ++i)
    states.push_back(run(i, states.back(), all_rows(batch)));
  return states;
}

Tensor DistilBertModel::first_tokens(const PackedBatch& batch) const {
  Tensor x = embeddings.forward(batch);
  AttentionRows rows = all_rows(batch);
  for (size_t i = 0; i + 1 < layer.size(); ++i)
    x = run(i, x, rows);

  const int64_t sequences = batch.sequences();
  const Tensor first = batch.offsets.view({sequences}, {1});
  std::vector<int32_t> one_query_each;
  for (int64_t s = 0; s <= sequences; ++s)
    one_query_each.push_back(int32_t(s));
  rows.query_offsets = Tensor::from(one_query_each, {sequences + 1}, x.device());
  return layer.back().forward(index_select(x, 0, first), x, rows);
}

DistilBertModel DistilBertModel::from_pretrained(const std::string& folder,
                                                 const LoadOptions& options, LoadReport* report) {
  return load(folder, options, report, [](const DistilBertConfig& config, nn::ModelOptions scope) {
    return DistilBertModel(config, nn::Scope(std::move(scope)) / "distilbert");
  });
}

DistilBertForSequenceClassification::DistilBertForSequenceClassification(
    const DistilBertConfig& config, nn::ModelOptions options)
    : DistilBertForSequenceClassification(config, nn::Scope([&] {
                                            config.validate();
                                            options.initializer_range = config.initializer_range;
                                            return std::move(options);
                                          }())) {}

DistilBertForSequenceClassification::DistilBertForSequenceClassification(
    const DistilBertConfig& config, nn::Scope at)
    : Module(at),
      config(config),
      distilbert(config, at / "distilbert"),
      pre_classifier(config.dim, config.dim, at / "pre_classifier"),
      classifier(config.dim, config.num_labels(), at / "classifier"),
      dropout(float(config.seq_classif_dropout), at) {}

Tensor DistilBertForSequenceClassification::forward(const PackedBatch& batch) const {
  const Tensor hidden = relu(pre_classifier.forward(distilbert.first_tokens(batch)));
  return classifier.forward(dropout.forward(hidden));
}

Tensor DistilBertForSequenceClassification::loss(const Tensor& given_logits, const Tensor& labels,
                                                 double label_smoothing) const {
  // Before the labels, which are targets of full precision, take the logits' dtype.
  const Tensor logits = to_full_precision(given_logits);
  const bool class_ids = !is_floating(labels.dtype());
  std::string type = config.problem_type;
  if (type.empty())
    type = config.num_labels() == 1 ? "regression"
           : class_ids              ? "single_label_classification"
                                    : "multi_label_classification";
  const int64_t sequences = logits.size(0);
  if (type == "single_label_classification") {
    check(config.num_labels() > 1,
          "loss: cross-entropy over one class is always 0; use regression or more labels");
    check(class_ids && labels.shape() == Shape{sequences},
          "loss: classification of logits {} needs class ids [{}], got {} {}", logits.shape(),
          sequences, name_of(labels.dtype()), labels.shape());
    bool any = false;
    for (int64_t label : labels.to_vector<int64_t>())
      any = any || label != -100;
    return any ? cross_entropy(logits, labels, {.label_smoothing = label_smoothing, .weight = {}})
               : sum(logits) * 0.0;
  }
  check(label_smoothing == 0,
        "loss: label smoothing is for rows of one class each, not for {}; must be 0, is {}", type,
        label_smoothing);
  check(
      config.problem_type == "regression" || type != "regression" || !class_ids,
      "loss: the model has one label and the targets are class ids; set problem_type to regression "
      "to fit them as numbers");
  // Equal counts are not enough: [2, 3] would silently fill [3, 2].
  check(labels.shape() == logits.shape() ||
            (config.num_labels() == 1 && labels.shape() == Shape{sequences}),
        "loss: {} targets {} do not fit logits {}", type, labels.shape(), logits.shape());
  const Tensor shaped = reshape(convert(labels, logits.dtype()), logits.shape());
  return type == "regression" ? mse_loss(logits, shaped)
                              : binary_cross_entropy_with_logits(logits, shaped);
}

DistilBertForSequenceClassification DistilBertForSequenceClassification::from_pretrained(
    const std::string& folder, const LoadOptions& options, LoadReport* report) {
  return load(folder, options, report, [](const DistilBertConfig& config, nn::ModelOptions scope) {
    return DistilBertForSequenceClassification(config, std::move(scope));
  });
}

void DistilBertForSequenceClassification::save_pretrained(const std::string& folder) const {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  check(!error, "{}: the folder cannot be made ({})", folder, error.message());
  write_safetensors(folder + "/model.safetensors", state_dict());
  write_whole_file(folder + "/config.json", config.to_json(classifier.weight.dtype()));
}

}  // namespace minim::models
