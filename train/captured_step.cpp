#include "train/captured_step.h"

#include <algorithm>
#include <limits>
#include <list>
#include <utility>
#include <vector>

#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "core/cuda/graph.h"
#include "core/recording.h"
#include "optim/clip.h"

namespace minim::train {

namespace {

constexpr int64_t ignored_label = -100;
// Batches whose longest sequences are alike up to so many tokens may share a graph.
constexpr int64_t lengths_multiple = 128;

// x with more elements of one value at its end.
template <class T>
Tensor extended(const Tensor& x, int64_t more, T value) {
  std::vector<T> all = x.to_vector<T>();
  all.resize(all.size() + size_t(more), value);
  return Tensor::from(all, {int64_t(all.size())});
}

template <class T>
bool lie_in(const Tensor& x, int64_t begin, int64_t end) {
  return std::ranges::all_of(x.values<T>(), [=](T i) { return i >= begin && i < end; });
}

// Bytes of a batch, and many times what the numbers of an optimizer take.
int64_t room_for(const PackedBatch& batch) {
  return 16 * (batch.tokens() + batch.sequences()) + batch.labels.bytes() + (int64_t(1) << 18);
}

// What a graph has the addresses of.
struct Layout {
  std::vector<std::pair<const void*, bool>> parameters;  // and whether they get gradients
  uint64_t optimizer = 0;
  bool operator==(const Layout&) const = default;
};

// What batches have in common that share a graph.
struct Bucket {
  int64_t tokens, sequences, longest;
  bool has_token_types, is_weighted;
  int64_t labels;
  DType label_dtype;
  bool operator==(const Bucket&) const = default;
};

// The longest sequence, rounded up.
int64_t longest_of(const PackedBatch& batch) {
  const auto offsets = batch.offsets.values<int32_t>();
  int32_t longest = 0;
  for (size_t i = 1; i < offsets.size(); ++i)
    longest = std::max(longest, offsets[i] - offsets[i - 1]);
  return (longest + lengths_multiple - 1) / lengths_multiple * lengths_multiple;
}

// A recorded step, and all of it that others may see.
struct Recorded {
  Bucket bucket;
  std::unique_ptr<Recording> recording;
  std::unique_ptr<cuda::Graph> graph;
  size_t optimizer_place = 0;  // of the optimizer's arguments
  std::vector<bool> has_gradient;
  Tensor coefficient;
  CapturedStep::Result result;
};

}  // namespace

PackedBatch fill_up(const PackedBatch& batch, int64_t tokens_multiple, int32_t pad_token_id) {
  const int64_t tokens = batch.tokens();
  // At least one, as a classifier reads each sequence's first token.
  const int64_t more = tokens_multiple - tokens % tokens_multiple;
  PackedBatch filled;
  filled.input_ids = extended<int32_t>(batch.input_ids, more, pad_token_id);
  // All at the first place, which every table of positions has.
  filled.position_ids = extended<int32_t>(batch.position_ids, more, 0);
  if (batch.token_type_ids.defined())
    filled.token_type_ids = extended<int32_t>(batch.token_type_ids, more, 0);
  filled.offsets = extended<int32_t>(batch.offsets, 1, int32_t(tokens + more));
  filled.key_begin = extended<int32_t>(batch.key_begin, 1, int32_t(tokens));
  filled.labels = batch.labels;
  return filled;
}

struct CapturedStep::State {
  const models::DistilBertForSequenceClassification model;  // a handle
  optim::AnyOptimizer& optimizer;
  CapturedStepOptions options;
  Device device = model.device();
  memory::Segment segment{device};
  Layout layout = {};
  std::vector<Bucket> seen = {};
  std::list<Recorded> recorded = {};  // used last comes first
  int64_t launched = 0;

  Layout layout_now() const {
    Layout now;
    for (const NamedTensor& parameter : model.parameters())
      now.parameters.emplace_back(parameter.tensor.raw(), parameter.tensor.requires_grad());
    now.optimizer = optimizer.layout();
    return now;
  }

  // Whether every check of the step would pass that depends on the batch's values.
  bool fits(const PackedBatch& batch) const {
    if (!model.training() || batch.sequences() == 0 || batch.tokens() == 0 ||
        !batch.labels.defined() || batch.labels.size(0) != batch.sequences())
      return false;
    const auto& embeddings = model.distilbert.embeddings;
    return lie_in<int32_t>(batch.input_ids, 0, embeddings.word_embeddings.weight.size(0)) &&
           lie_in<int32_t>(batch.position_ids, 0, embeddings.position_embeddings.weight.size(0)) &&
           (is_floating(batch.labels.dtype()) || labels_fit(batch.labels));
  }
  bool labels_fit(const Tensor& labels) const {
    if (model.config.problem_type == "regression") return true;
    const int64_t classes = model.config.num_labels();
    const auto values = labels.values<int64_t>();
    return std::ranges::all_of(
               values, [=](int64_t c) { return c == ignored_label || (c >= 0 && c < classes); }) &&
           std::ranges::any_of(values, [](int64_t c) { return c != ignored_label; });
  }

  // What a step is made of.
  struct Made {
    Result result;
    Tensor coefficient;
  };

  // Everything up to the optimizer's step; `filled` is how many sequences at the end count for
  // nothing, `weight` the loss's or undefined.
  Made gradients(const PackedBatch& there, int64_t filled, const Tensor& weight) const {
    Tensor loss;
    {
      const Autocast precision(options.autocast);
      Tensor logits = model.forward(there);
      if (filled > 0) logits = slice(logits, 0, 0, logits.size(0) - filled);
      loss = options.loss ? options.loss(logits, there.labels) : model.loss(logits, there.labels);
    }
    Tensor whole = weight.defined() ? loss * weight : loss;
    if (options.scaler != nullptr) whole = options.scaler->scale(whole);
    whole.backward();
    const double most =
        options.max_grad_norm > 0 ? options.max_grad_norm : std::numeric_limits<double>::max();
    const auto [norm, coefficient] =
        options.scaler != nullptr
            ? options.scaler->clip_on_device(model.parameters(), most)
            : optim::clip_on_device(model.parameters(), most, options.on_non_finite);
    return {{loss.detach(), norm}, coefficient};
  }

  optim::StepOptions step_options(const Tensor& coefficient, std::optional<double> lr) const {
    return {.lr = lr,
            .gradient_factor = coefficient,
            .factor_tells_non_finite =
                options.scaler != nullptr || options.on_non_finite == optim::OnNonFinite::skip};
  }

  // The optimizer's step, and what comes after it.
  void step(const Tensor& coefficient, std::optional<double> lr) {
    if (options.scaler != nullptr) {
      options.scaler->step(optimizer, step_options(coefficient, lr));
      options.scaler->update();
    } else {
      optimizer.step(step_options(coefficient, lr));
    }
    model.zero_grad();
  }

  Result run_one_by_one(const PackedBatch& batch, std::optional<double> lr, double weight) {
    const Tensor times = weight == 1.0 ? Tensor() : weight_of(weight).to(device);
    const Made made = gradients(batch.to(device), 0, times);
    step(made.coefficient, lr);
    return made.result;
  }

  Tensor weight_of(double weight) const {
    return Tensor::full({}, weight, model.classifier.weight.dtype());
  }

  static PackedBatch inputs(Recording& recording, const PackedBatch& b) {
    const auto input = [&](const Tensor& x) { return x.defined() ? recording.input(x) : x; };
    PackedBatch there;
    there.input_ids = input(b.input_ids);
    there.position_ids = input(b.position_ids);
    there.token_type_ids = input(b.token_type_ids);
    there.offsets = input(b.offsets);
    there.key_begin = input(b.key_begin);
    there.labels = input(b.labels);
    return there;
  }

  Recorded record(const Bucket& bucket, const PackedBatch& filled, const RealRows& rows,
                  std::optional<double> lr, double weight) {
    Recorded made{.bucket = bucket,
                  .recording = std::make_unique<Recording>(device, room_for(filled)),
                  .graph = {},
                  .has_gradient = {},
                  .coefficient = {},
                  .result = {}};
    Recording& recording = *made.recording;
    recording.set_rows(rows);
    // Casts of parameters are part of the step, also where one is at hand.
    for (const NamedTensor& parameter : model.parameters())
      parameter.tensor.bump_version();
    const memory::Segment::Use use(segment);
    made.graph = std::make_unique<cuda::Graph>(device, [&] {
      const Recording::Use recorded_here(recording);
      const PackedBatch there = inputs(recording, filled);
      const Tensor times = bucket.is_weighted ? recording.input(weight_of(weight)) : Tensor();
      const Made found = gradients(there, 1, times);
      made.result = found.result;
      made.coefficient = found.coefficient;
      for (const NamedTensor& parameter : model.parameters())
        made.has_gradient.push_back(parameter.tensor.grad().defined());
      made.optimizer_place = recording.place();
      step(made.coefficient, lr);
    });
    return made;
  }

  // Calls work; where that throws, what the host has counted is taken back.
  template <class Work>
  void or_undo(const Work& work) {
    const Generator generator = model.generator();
    optimizer.begin_step();
    const auto undo = [&] {
      optimizer.take_back_step();
      model.zero_grad();
      model.generator() = generator;
    };
    try {
      work();
    } catch (const Error& error) {
      undo();
      throw CannotRecord(error.what());
    } catch (...) {
      undo();
      throw;
    }
  }

  // Tells a graph the numbers of its next launch.
  void renew(const Recorded& of, const PackedBatch& filled, const RealRows& rows,
             std::optional<double> lr, double weight) {
    Recording& recording = *of.recording;
    recording.replay();
    const Recording::Use use(recording);
    recording.set_rows(rows);
    inputs(recording, filled);
    if (of.bucket.is_weighted) recording.input(weight_of(weight));
    recording.draw_again(model.generator());
    recording.go_to(of.optimizer_place);
    // The rule is asked for its numbers alone: what it takes for gradients is not read.
    const NamedTensors parameters = model.parameters();
    for (size_t i = 0; i < parameters.size(); ++i)
      if (of.has_gradient[i]) Tensor(parameters[i].tensor).set_grad(parameters[i].tensor.detach());
    optimizer.step(step_options(of.coefficient, lr));
    model.zero_grad();
  }
};

CapturedStep::CapturedStep(const models::DistilBertForSequenceClassification& model,
                           optim::AnyOptimizer& optimizer, CapturedStepOptions options) {
  check(model.device().is_cuda(), "captured_step: the model is on {}, must be on a CUDA device",
        model.device());
  check(optimizer.launches_together(),
        "captured_step: {} steps each parameter by itself, which cannot be recorded; run the step "
        "one by one",
        optimizer.name());
  check(optimizer.on_non_finite() == optim::OnNonFinite::apply || options.scaler != nullptr ||
            options.on_non_finite == optim::OnNonFinite::skip,
        "captured_step: {} asks before each step whether gradients are finite, which waits for the "
        "device; set OnNonFinite::apply, or run the step one by one",
        optimizer.name());
  check(options.tokens_multiple > 0 && options.most_graphs > 0,
        "captured_step: tokens_multiple is {} and most_graphs {}, must be positive",
        options.tokens_multiple, options.most_graphs);
  if (options.scaler != nullptr && !options.scaler->is_enabled()) {
    options.scaler = nullptr;
    options.on_non_finite = optim::OnNonFinite::skip;
  }
  if (options.scaler != nullptr) options.scaler->to(model.device());
  state_.reset(new State{model, optimizer, std::move(options)});
  state_->layout = state_->layout_now();
}

CapturedStep::~CapturedStep() = default;

int64_t CapturedStep::graphs() const {
  return int64_t(state_->recorded.size());
}

int64_t CapturedStep::launched_steps() const {
  return state_->launched;
}

CapturedStep::Result CapturedStep::run(const PackedBatch& batch, std::optional<double> lr,
                                       double weight) {
  State& s = *state_;
  s.model.zero_grad();
  if (Layout now = s.layout_now(); !(now == s.layout)) {
    s.recorded.clear();
    s.seen.clear();
    s.layout = std::move(now);
  }
  if (!s.fits(batch)) return s.run_one_by_one(batch, lr, weight);

  const PackedBatch filled =
      fill_up(batch, s.options.tokens_multiple, int32_t(s.model.config.pad_token_id));
  const Bucket bucket = {
      filled.tokens(), filled.sequences(),    longest_of(filled),   filled.token_type_ids.defined(),
      weight != 1.0,   filled.labels.numel(), filled.labels.dtype()};
  const RealRows rows = {.padded_tokens = filled.tokens(),
                         .tokens = batch.tokens(),
                         .padded_sequences = filled.sequences(),
                         .sequences = batch.sequences(),
                         .longest = bucket.longest};
  auto found = std::ranges::find(s.recorded, bucket, &Recorded::bucket);
  if (found == s.recorded.end()) {
    // The first time, whatever is kept from step to step gets its memory.
    if (std::ranges::find(s.seen, bucket) == s.seen.end()) {
      s.seen.push_back(bucket);
      Result result = s.run_one_by_one(batch, lr, weight);
      if (s.recorded.empty()) s.layout = s.layout_now();
      return result;
    }
    s.or_undo([&] { s.recorded.push_front(s.record(bucket, filled, rows, lr, weight)); });
    found = s.recorded.begin();
    if (int64_t(s.recorded.size()) > s.options.most_graphs) s.recorded.pop_back();
  } else {
    try {
      s.or_undo([&] { s.renew(*found, filled, rows, lr, weight); });
    } catch (...) {
      s.recorded.erase(found);
      throw;
    }
    s.recorded.splice(s.recorded.begin(), s.recorded, found);
  }
  found->recording->upload();
  found->graph->launch();
  ++s.launched;
  return found->result;
}

}  // namespace minim::train
