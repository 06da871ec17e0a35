#include "train/captured_step.h"

#include <algorithm>
#include <list>
#include <set>
#include <utility>
#include <vector>

#include "core/cuda/graph.h"
#include "core/recording.h"
#include "optim/clip.h"

namespace minim::train {

namespace {

constexpr int64_t ignored_label = -100;

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
  return 16 * (batch.tokens() + batch.sequences()) + (int64_t(1) << 18);
}

// What a graph has the addresses of.
struct Layout {
  std::vector<std::pair<const void*, bool>> parameters;  // and whether they get gradients
  uint64_t optimizer = 0;
  bool operator==(const Layout&) const = default;
};

using Bucket = std::pair<int64_t, int64_t>;  // tokens and sequences

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
  filled.labels = extended<int64_t>(batch.labels, 1, ignored_label);
  return filled;
}

struct CapturedStep::State {
  const models::DistilBertForSequenceClassification model;  // a handle
  optim::AnyOptimizer& optimizer;
  CapturedStepOptions options;
  Device device = model.device();
  memory::Segment segment{device};
  Layout layout = {};
  std::set<Bucket> seen = {};
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
    if (!model.training() || !batch.labels.defined() || batch.labels.dtype() != DType::i64 ||
        batch.labels.rank() != 1 || batch.labels.numel() != batch.sequences())
      return false;
    const auto& type = model.config.problem_type;
    const int64_t classes = model.config.num_labels();
    if (classes < 2 || (!type.empty() && type != "single_label_classification")) return false;
    const auto& embeddings = model.distilbert.embeddings;
    const auto labels = batch.labels.values<int64_t>();
    return batch.sequences() > 0 && batch.tokens() > 0 &&
           lie_in<int32_t>(batch.input_ids, 0, embeddings.word_embeddings.weight.size(0)) &&
           lie_in<int32_t>(batch.position_ids, 0, embeddings.position_embeddings.weight.size(0)) &&
           std::ranges::all_of(
               labels, [=](int64_t c) { return c == ignored_label || (c >= 0 && c < classes); }) &&
           std::ranges::any_of(labels, [](int64_t c) { return c != ignored_label; });
  }

  optim::StepOptions step_options(const Tensor& coefficient, std::optional<double> lr) const {
    optim::StepOptions step{.lr = lr};
    if (options.max_grad_norm > 0) step.gradient_factor = coefficient;
    return step;
  }

  // Everything up to the optimizer's step.
  std::pair<Result, Tensor> gradients(const PackedBatch& there) const {
    const Tensor loss = model.loss(model.forward(there), there.labels);
    loss.backward();
    const auto [norm, coefficient] =
        optim::clip_on_device(model.parameters(), std::max(options.max_grad_norm, 0.0));
    return {{loss.detach(), norm}, coefficient};
  }

  Result run_one_by_one(const PackedBatch& batch, std::optional<double> lr) {
    const auto [result, coefficient] = gradients(batch.to(device));
    optimizer.step(step_options(coefficient, lr));
    model.zero_grad();
    return result;
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

  Recorded record(const PackedBatch& filled, const RealRows& rows, std::optional<double> lr) {
    Recorded made{.bucket = {filled.tokens(), filled.sequences()},
                  .recording = std::make_unique<Recording>(device, room_for(filled)),
                  .graph = {},
                  .has_gradient = {},
                  .coefficient = {},
                  .result = {}};
    Recording& recording = *made.recording;
    recording.set_rows(rows);
    const Generator generator = model.generator();
    const memory::Segment::Use use(segment);
    try {
      made.graph = std::make_unique<cuda::Graph>(device, [&] {
        const Recording::Use recorded_here(recording);
        std::tie(made.result, made.coefficient) = gradients(inputs(recording, filled));
        for (const NamedTensor& parameter : model.parameters())
          made.has_gradient.push_back(parameter.tensor.grad().defined());
        made.optimizer_place = recording.place();
        optimizer.step(step_options(made.coefficient, lr));
        model.zero_grad();
      });
    } catch (...) {
      model.zero_grad();
      model.generator() = generator;
      throw;
    }
    return made;
  }

  // Tells a graph the numbers of its next launch.
  void renew(const Recorded& of, const PackedBatch& filled, const RealRows& rows,
             std::optional<double> lr) {
    Recording& recording = *of.recording;
    recording.replay();
    const Recording::Use use(recording);
    recording.set_rows(rows);
    inputs(recording, filled);
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
  check(optimizer.on_non_finite() == optim::OnNonFinite::apply,
        "captured_step: {} asks before each step whether gradients are finite, which waits for the "
        "device; set OnNonFinite::apply, or run the step one by one",
        optimizer.name());
  check(options.tokens_multiple > 0 && options.most_graphs > 0,
        "captured_step: tokens_multiple is {} and most_graphs {}, must be positive",
        options.tokens_multiple, options.most_graphs);
  state_.reset(new State{model, optimizer, options});
  state_->layout = state_->layout_now();
}

CapturedStep::~CapturedStep() = default;

int64_t CapturedStep::graphs() const {
  return int64_t(state_->recorded.size());
}

int64_t CapturedStep::launched_steps() const {
  return state_->launched;
}

CapturedStep::Result CapturedStep::run(const PackedBatch& batch, std::optional<double> lr) {
  State& s = *state_;
  s.model.zero_grad();
  if (Layout now = s.layout_now(); !(now == s.layout)) {
    s.recorded.clear();
    s.seen.clear();
    s.layout = std::move(now);
  }
  if (!s.fits(batch)) return s.run_one_by_one(batch, lr);

  const PackedBatch filled =
      fill_up(batch, s.options.tokens_multiple, int32_t(s.model.config.pad_token_id));
  const Bucket bucket = {filled.tokens(), filled.sequences()};
  const RealRows rows = {.padded_tokens = filled.tokens(),
                         .tokens = batch.tokens(),
                         .padded_sequences = filled.sequences(),
                         .sequences = batch.sequences()};
  auto found = std::ranges::find(s.recorded, bucket, &Recorded::bucket);
  if (found == s.recorded.end()) {
    // The first time, whatever is kept from step to step gets its memory.
    if (s.seen.insert(bucket).second) {
      Result result = s.run_one_by_one(batch, lr);
      if (s.recorded.empty()) s.layout = s.layout_now();
      return result;
    }
    s.recorded.push_front(s.record(filled, rows, lr));
    found = s.recorded.begin();
    if (int64_t(s.recorded.size()) > s.options.most_graphs) s.recorded.pop_back();
  } else {
    s.renew(*found, filled, rows, lr);
    s.recorded.splice(s.recorded.begin(), s.recorded, found);
  }
  found->recording->upload();
  found->graph->launch();
  ++s.launched;
  return found->result;
}

}  // namespace minim::train
