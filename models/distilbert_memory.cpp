#include "models/distilbert_memory.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <unordered_map>

namespace minim::models {

namespace {

using memory::Category;
using Shadow = Rehearsal::Shadow;

// No machine has 2^50 bytes; sums of a few such sizes do not overflow.
constexpr double most_bytes = 0x1p50;

double parameters_of(const DistilBertConfig& c) {
  const auto dim = double(c.dim), hidden = double(c.hidden_dim);
  return (double(c.vocab_size) + double(c.max_position_embeddings)) * dim +
         double(c.n_layers) * (4 * dim * dim + 2 * dim * hidden) + dim * dim +
         double(c.num_labels()) * dim;
}

// A bound of a step's activations, before sizes are multiplied as integers.
double most_activations(const DistilBertConfig& c, const BatchShape& batch, int threads) {
  const double per_token = 24 * double(c.dim) + 4 * double(c.hidden_dim) + 4 * double(c.n_heads);
  return 4 *
         (double(batch.tokens) * (per_token * double(c.n_layers + 2) + 4 * double(c.num_labels())) +
          128.0 * double(threads) * double(batch.longest));
}

// The forward of each layer, written like nn/ and models/distilbert.cpp so that temporaries live as
// long here as there.
class Step {
 public:
  Step(const DistilBertForSequenceClassification& model, const BatchShape& batch,
       const RehearsalOptions& options)
      : books(options),
        model_(model),
        batch_(batch),
        recomputes_(options.training && model.is_gradient_checkpointing()) {}

  // One micro-batch, as Trainer::backward. The loss is multiplied by its share of an update, and
  // then by a GradScaler's scale.
  void backward(bool has_share, bool has_scale) {
    const Shadow data = books.hold(bytes_of_inputs() + bytes_of_labels(), Category::data, "batch");
    const Shadow loss = loss_of(forward());
    const Shadow shared = has_share ? books.scale(loss, "loss") : loss;
    books.backward(has_scale ? books.scale(shared, "loss") : shared);
  }

  // As Evaluator::evaluate: a batch, then, with nothing but its labels and logits left, its loss in
  // f64. That without label smoothing follows and takes no more.
  void evaluate(int64_t rows, bool keeps_logits) {
    const int64_t row_bytes = keeps_logits ? 4 * model_.config.num_labels() : 0;
    const Shadow all = books.hold(rows * row_bytes, Category::data, "logits of all rows");
    const Shadow labels = books.hold(bytes_of_labels(), Category::data, "labels");
    const Shadow logits = [&] {
      const Shadow inputs = books.hold(bytes_of_inputs(), Category::data, "inputs");
      return forward();
    }();
    loss_of(books.to(logits, DType::f64, "logits in f64"));
  }

  // Blocks of gradient_norm()'s sums, the largest of all parameters.
  void gradient_norm() {
    for (const NamedTensor& parameter : model_.parameters())
      if (parameter.tensor.requires_grad())
        books.hold((parameter.tensor.numel() + 32767) / 32768 * 8, Category::workspace, "norm");
  }

  Rehearsal books;

 private:
  int64_t bytes_of_inputs() const {
    return 4 * batch_.tokens * (batch_.token_types ? 3 : 2) + 4 * (2 * batch_.sequences + 1);
  }
  int64_t bytes_of_labels() const {
    return batch_.sequences * (is_classification() ? 8 : 4 * model_.config.num_labels());
  }

  bool is_classification() const {
    const DistilBertConfig& config = model_.config;
    return config.problem_type == "single_label_classification" ||
           (config.problem_type.empty() && config.num_labels() > 1);
  }

  const Shadow& weight(const Tensor& parameter) {
    const auto [place, is_new] = weights_.try_emplace(parameter.impl().get());
    if (is_new) place->second = books.parameter(parameter.shape(), parameter.requires_grad());
    return place->second;
  }
  Shadow apply(const nn::Linear& layer, const Shadow& x, std::string_view what) {
    return books.linear(x, weight(layer.weight), weight(layer.bias), what);
  }
  Shadow apply(const nn::LayerNorm& layer, const Shadow& x, std::string_view what) {
    return books.layer_norm(x, weight(layer.weight), weight(layer.bias), what);
  }
  Shadow apply(const nn::Embedding& layer, std::string_view what) {
    return books.embedding(weight(layer.weight), batch_.tokens, what);
  }

  Shadow apply(const nn::MultiHeadSelfAttention& layer, const Shadow& queries, const Shadow& x,
               const Shadow& offsets) {
    return apply(layer.out_lin,
                 books.attention(apply(layer.q_lin, queries, "attention: q, k and v"),
                                 apply(layer.k_lin, x, "attention: q, k and v"),
                                 apply(layer.v_lin, x, "attention: q, k and v"), layer.heads,
                                 batch_.longest, offsets, "attention: output of the heads"),
                 "attention: out_lin");
  }
  Shadow apply(const nn::FeedForward& layer, const Shadow& x) {
    const std::string& name = layer.activation.name();
    return books.dropout(
        apply(layer.lin2, books.unary(name, apply(layer.lin1, x, "feed-forward: lin1"), hidden_),
              "feed-forward: lin2"),
        double(layer.dropout.p), "feed-forward: dropout");
  }
  Shadow apply(const nn::TransformerBlock& block, const Shadow& queries, const Shadow& x,
               const Shadow& offsets) {
    const Shadow h = apply(
        block.sa_layer_norm,
        books.add(apply(block.attention, queries, x, offsets), queries, "sa_layer_norm: input"),
        "sa_layer_norm: output");
    return apply(block.output_layer_norm,
                 books.add(apply(block.ffn, h), h, "output_layer_norm: input"),
                 "output_layer_norm: output");
  }
  Shadow apply(const DistilBertEmbeddings& layer) {
    return books.dropout(apply(layer.layer_norm,
                               books.add(apply(layer.word_embeddings, "embeddings: words"),
                                         apply(layer.position_embeddings, "embeddings: positions"),
                                         "embeddings: layer norm's input"),
                               "embeddings: layer norm"),
                         double(layer.dropout.p), "embeddings: output");
  }
  // As DistilBertModel::run.
  Shadow run(size_t i, const Shadow& x, const Shadow& offsets) {
    const nn::TransformerBlock& block = model_.distilbert.layer[i];
    if (!recomputes_) return apply(block, x, x, offsets);
    Rehearsal::Shadows parameters;
    for (const NamedTensor& parameter : block.parameters())
      parameters.push_back(weight(parameter.tensor));
    return books.recompute({x}, parameters, [this, &block, offsets](const auto& inputs) {
      return apply(block, inputs[0], inputs[0], offsets);
    });
  }
  Shadow first_tokens(const DistilBertModel& body) {
    Shadow x = apply(body.embeddings);
    const Shadow of_batch = books.hold(0, Category::data, "offsets");
    for (size_t i = 0; i + 1 < body.layer.size(); ++i)
      x = run(i, x, of_batch);
    const Shadow one_query_each =
        books.hold(4 * (batch_.sequences + 1), Category::activations, "last block: offsets");
    return apply(body.layer.back(),
                 books.index_select(x, batch_.sequences, "last block: first tokens"), x,
                 one_query_each);
  }
  Shadow forward() {
    const Shadow hidden = books.unary(
        "relu",
        apply(model_.pre_classifier, first_tokens(model_.distilbert), "head: pre_classifier"),
        "head: relu");
    return apply(model_.classifier,
                 books.dropout(hidden, double(model_.dropout.p), "head: dropout"), "head: logits");
  }
  Shadow loss_of(const Shadow& logits) {
    return is_classification() ? books.cross_entropy(logits) : books.mean_loss(logits);
  }

  const DistilBertForSequenceClassification& model_;
  const BatchShape& batch_;
  const bool recomputes_;
  const std::string hidden_ = "feed-forward: " + model_.config.activation;
  std::unordered_map<const void*, Shadow> weights_;
};

// Throws where a batch is too long, or its sizes could overflow.
void check_batch(const DistilBertForSequenceClassification& model, const BatchShape& batch,
                 int threads) {
  const int64_t positions = model.config.max_position_embeddings;
  check(batch.longest <= positions,
        "batch: a sequence of {} tokens is longer than the model's {} positions", batch.longest,
        positions);
  const double bound = most_activations(model.config, batch, threads);
  check(bound < most_bytes,
        "batch: {} tokens need up to {:.3g} bytes of activations, which fit into no memory; a "
        "smaller batch or shorter sequences need less",
        batch.tokens, bound);
}

}  // namespace

DistilBertForSequenceClassification model_without_weights(const DistilBertConfig& config) {
  config.validate();
  const double parameters = parameters_of(config);
  check(4 * parameters < most_bytes,
        "config: a model of {:.3g} parameters fits into no memory; look at vocab_size {}, dim {} "
        "and hidden_dim {}",
        parameters, config.vocab_size, config.dim, config.hidden_dim);
  const auto nothing = std::make_shared<char>();
  return DistilBertForSequenceClassification(
      config, {.source = [nothing](const std::string&, const Shape& shape) {
        return Tensor::borrow(nullptr, shape, DType::f32, nothing);
      }});
}

BatchShape BatchShape::uniform(int64_t sequences, int64_t length) {
  check(sequences >= 1, "batch: needs at least 1 sequence, got {}", sequences);
  check(length >= 1, "batch: a sequence needs at least 1 token, got {}", length);
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  check(sequences <= most / length,
        "batch: {} sequences of {} tokens are more than the 2^31 - 1 tokens that a batch can hold",
        sequences, length);
  return {sequences, sequences * length, length};
}

BatchShape BatchShape::of(std::span<const int64_t> lengths) {
  BatchShape shape{0, 0, 0};
  for (const int64_t length : lengths) {
    check(length >= 1, "batch: a sequence needs at least 1 token, got {}", length);
    shape.longest = std::max(shape.longest, length);
    check(length <= std::numeric_limits<int32_t>::max() - shape.tokens,
          "batch: sequence {} goes beyond the 2^31 - 1 tokens that a batch can hold",
          shape.sequences);
    shape.tokens += length;
    ++shape.sequences;
  }
  check(shape.sequences >= 1, "batch: needs at least 1 sequence, got 0");
  return shape;
}

StepMemory rehearse_step(const DistilBertForSequenceClassification& model, const BatchShape& batch,
                         const StepOptions& options) {
  check_batch(model, batch, options.threads);
  check(options.gradient_accumulation_steps >= 1,
        "gradient_accumulation_steps: must be at least 1, is {}",
        options.gradient_accumulation_steps);
  StepMemory memory;
  for (const NamedTensor& parameter : model.parameters()) {
    memory.weights += parameter.tensor.bytes();
    if (parameter.tensor.requires_grad()) memory.gradients += parameter.tensor.bytes();
  }
  check(memory.gradients > 0, "freeze: every parameter is frozen; nothing is left to train");

  // The first micro-batch makes the gradients, the second adds to them; more change nothing.
  const int64_t micro_batches = std::min<int64_t>(options.gradient_accumulation_steps, 2);
  const auto rehearse = [&](int64_t watched) {
    auto step = std::make_unique<Step>(
        model, batch,
        RehearsalOptions{
            .threads = options.threads, .autocast = options.autocast, .watched = watched});
    for (int64_t i = 0; i < micro_batches; ++i)
      step->backward(micro_batches > 1, options.autocast == DType::f16);
    step->gradient_norm();
    return step;
  };
  {
    const auto step = rehearse(0);
    const Rehearsal& books = step->books;
    memory.activations = books.peak(Category::activations).bytes;
    memory.workspace = books.peak(Category::workspace).bytes;
    memory.data = books.peak(Category::data).bytes;
    memory.casts = books.cast_bytes();
    memory.together = books.peak().bytes;
    memory.allocation_at_peak = books.peak(Category::activations).at;
  }
  memory.at_peak = rehearse(memory.allocation_at_peak)->books.parts();
  return memory;
}

EvaluationMemory rehearse_evaluation(const DistilBertForSequenceClassification& model,
                                     const BatchShape& batch, int64_t rows,
                                     const StepOptions& options) {
  check_batch(model, batch, options.threads);
  check(rows >= batch.sequences, "evaluation: a batch of {} sequences is more than the {} rows",
        batch.sequences, rows);
  Step step(model, batch,
            {.threads = options.threads, .autocast = options.autocast, .training = false});
  step.evaluate(rows, options.keeps_logits);
  const Rehearsal& books = step.books;
  return {.activations = books.peak(Category::activations).bytes,
          .workspace = books.peak(Category::workspace).bytes,
          .data = books.peak(Category::data).bytes,
          .casts = books.cast_bytes(),
          .together = books.peak().bytes};
}

}  // namespace minim::models
