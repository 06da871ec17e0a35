#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "autograd/autocast.h"
#include "autograd/ops.h"
#include "core/memory_advice.h"
#include "optim/clip.h"
#include "train/class_weights.h"
#include "train/data_loader.h"
#include "train/memory_options.h"
#include "train/stopwatch.h"
#include "train/trainer.h"

// The Trainer's update. Where gradients, scale and clipping can stay on a device, it is not waited
// for: losses and norms are read when somebody asks for them.
namespace minim::train {

namespace {

// Updates whose losses are left on a device at most; so late is one noticed that is not finite.
constexpr size_t most_unread = 64;

// A NaN without its sign, which says nothing.
std::string text_of(double value) {
  return std::isnan(value) ? "nan" : fmt::format("{:.6g}", value);
}

}  // namespace

// Steps as graphs, where device, optimizer and arguments are such that they are the same.
std::unique_ptr<CapturedStep> Trainer::make_captured_step() {
  const char* choice = std::getenv("MINIM_CUDA_GRAPHS");
  const std::string_view chosen = choice == nullptr ? "" : choice;
  check(chosen.empty() || chosen == "0" || chosen == "1",
        "trainer: MINIM_CUDA_GRAPHS is \"{}\", it must be 0 or 1", chosen);
  if (chosen == "0" || model_.device().is_cpu() || !optimizer_.launches_together() ||
      arguments_.gradient_accumulation_steps > 1 || arguments_.neftune_noise_alpha)
    return nullptr;
  return std::make_unique<CapturedStep>(
      model_, optimizer_,
      CapturedStepOptions{.max_grad_norm = arguments_.max_grad_norm,
                          .on_non_finite = optim::OnNonFinite::skip,
                          .autocast = autocast_,
                          .scaler = &scaler_,
                          .loss = [this](const Tensor& logits,
                                         const Tensor& labels) { return loss_of(logits, labels); },
                          .most_graphs = 64});
}

// One optimizer step on the mean loss over the rows of all micro-batches.
void Trainer::update(std::span<const Rows> micro_batches) {
  const memory::Advice advice([this] {
    const LargestBatch& most = state_.largest_batch;
    return arguments_that_save(
        model_, {most.sequences, most.tokens, most.longest, most.token_types},
        {.gradient_accumulation_steps = arguments_.gradient_accumulation_steps,
         .autocast = autocast_});
  });
  Update update{.step = state_.global_step + 1};
  double total = 0;
  for (const Rows& rows : micro_batches)
    total += counted_weight(train_set_, rows, arguments_.class_weights);
  if (total == 0) total = 1;
  for (const Rows& rows : micro_batches) {
    // With class weights a micro-batch's loss is the sum over its rows, else their mean.
    const double share =
        (class_weights_.defined() ? 1.0 : double(counted_rows(train_set_, rows))) / total;
    update.micro_batches.push_back({rows, share, {}, {}});
  }
  bool is_left_out = false;
  optim::StepOptions options;
  if (!optimizer_.finds_rate()) options.lr = learning_rate_at_(state_.global_step);
  const bool at_once = model_.device().is_cpu();
  if (at_once)
    is_left_out = step_at_once(update, options);
  else if (!launch_step(update, options.lr))
    step_there(update, options);
  if (options.lr) state_.learning_rate = *options.lr;

  state_.global_step = update.step;
  state_.device = model_.device();
  state_.optimizer_state_bytes = memory::current(memory::Category::optimizer_state, state_.device);
  if (is_left_out) {
    count_left_out(update.loss);
  } else if (at_once) {
    count_loss(update.loss);
  } else {
    unread_.push_back(std::move(update));
    if (unread_.size() >= most_unread) read_losses();
  }
}

// An update whose losses and norm are known as it goes; whether it was left out.
bool Trainer::step_at_once(Update& update, optim::StepOptions options) {
  for (MicroBatch& micro_batch : update.micro_batches) {
    micro_batch.generator = model_.generator();
    micro_batch.loss = backward(micro_batch.rows, micro_batch.share);
    update.loss += micro_batch.share * read(micro_batch);
    micro_batch.loss = Tensor();  // nobody reads it again
  }
  const NamedTensors parameters = model_.parameters();
  state_.grad_norm = scaler_.unscaled_norm(parameters);
  check_norm(update.loss, parameters);
  const bool is_left_out = !std::isfinite(update.loss) || is_norm_refused();
  // Under fp16 the scaler leaves out what is not finite, and takes note of it.
  options.gradient_norm = is_left_out ? std::numeric_limits<double>::quiet_NaN() : state_.grad_norm;
  if (arguments_.max_grad_norm > 0)
    options.gradient_scale = optim::clip_coefficient(state_.grad_norm, arguments_.max_grad_norm);
  const Stopwatch stepping;
  if (!is_left_out || scaler_.is_enabled()) scaler_.step(optimizer_, options);
  scaler_.update();
  if (scaler_.is_enabled()) state_.scaler = scaler_.state();
  if (!options.lr) state_.learning_rate = optimizer_.last_lr(0).value_or(0);
  state_.optimizer_seconds += stepping.seconds();
  optimizer_.zero_grad();
  return is_left_out;
}

// An update on a device, which keeps losses and norm, and leaves the weights as they are where the
// gradients are not finite.
void Trainer::step_there(Update& update, optim::StepOptions options) {
  for (MicroBatch& micro_batch : update.micro_batches) {
    micro_batch.generator = model_.generator();
    micro_batch.loss = backward(micro_batch.rows, micro_batch.share);
  }
  const double most =
      arguments_.max_grad_norm > 0 ? arguments_.max_grad_norm : std::numeric_limits<double>::max();
  const auto [norm, coefficient] = scaler_.clip_on_device(model_.parameters(), most);
  update.norm = norm;
  options.gradient_factor = coefficient;
  options.factor_tells_non_finite = true;
  const Stopwatch stepping;
  scaler_.step(optimizer_, options);
  scaler_.update();
  state_.optimizer_seconds += stepping.seconds();
  optimizer_.zero_grad();
}

// The same as one launch; false, and nothing has happened, where it cannot be.
bool Trainer::launch_step(Update& update, std::optional<double> lr) {
  if (!captured_) return false;
  // What somebody has left there belongs to the update.
  for (const NamedTensor& parameter : model_.parameters())
    if (parameter.tensor.grad().defined()) return false;
  MicroBatch& only = update.micro_batches.front();
  only.generator = model_.generator();
  const PackedBatch batch = load_batch(train_set_, only.rows, Device::cpu());
  const int64_t launched = captured_->launched_steps();
  try {
    const auto [loss, norm] = captured_->run(batch, lr, only.share);
    // Those of a graph are written again by its next launch.
    only.loss = loss.clone();
    update.norm = norm.clone();
  } catch (const CannotRecord& error) {
    captured_.reset();
    warn(fmt::format("updates are not launched as graphs from here on, which takes longer: {}",
                     error.what()));
    return false;
  }
  launched_updates_ += captured_->launched_steps() - launched;
  note_size(batch, only.rows);
  state_.tokens += batch.tokens();
  return true;
}

// Forward and backward of one micro-batch whose loss counts for `share` of the update; its own
// loss.
Tensor Trainer::backward(const Rows& rows, double share) {
  const PackedBatch batch = load_batch(train_set_, rows, model_.device());
  note_size(batch, rows);
  const Tensor loss = loss_of(batch);
  scaler_.scale(share == 1.0 ? loss : loss * share).backward();
  state_.tokens += batch.tokens();
  return loss.detach();
}

Tensor Trainer::loss_of(const PackedBatch& batch) const {
  const Autocast precision(autocast_);
  return loss_of(model_.forward(batch), batch.labels);
}

Tensor Trainer::loss_of(const Tensor& logits, const Tensor& labels) const {
  const double smoothing = arguments_.label_smoothing_factor;
  if (!class_weights_.defined()) return model_.loss(logits, labels, smoothing);
  return cross_entropy(
      logits, labels,
      {.reduction = Reduction::sum, .label_smoothing = smoothing, .weight = class_weights_});
}

// For the prediction of what such batches take.
void Trainer::note_size(const PackedBatch& batch, const Rows& rows) {
  const auto bytes_of = [](const Tensor& labels) { return labels.defined() ? labels.bytes() : 0; };
  state_.label_bytes = bytes_of(train_set_.labels) + bytes_of(eval_set_.labels);
  LargestBatch& most = state_.largest_batch;
  most.sequences = std::max(most.sequences, batch.sequences());
  most.tokens = std::max(most.tokens, batch.tokens());
  most.token_types = most.token_types || batch.token_type_ids.defined();
  for (const int64_t row : rows)
    most.longest = std::max(most.longest, train_set_.sequences.length(size_t(row)));
}

void Trainer::note_evaluation() {
  if (state_.eval_rows > 0) return;  // the set is the same each time
  LargestBatch& most = state_.largest_eval_batch;
  state_.eval_rows = int64_t(eval_set_.sequences.size());
  state_.eval_keeps_logits = evaluator_.keeps_logits();
  text::TokenSequence buffer;
  most.sequences = std::min(arguments_.per_device_eval_batch_size, state_.eval_rows);
  for (int64_t first = 0; first < state_.eval_rows; first += most.sequences) {
    int64_t tokens = 0;
    const int64_t end = std::min(first + most.sequences, state_.eval_rows);
    for (int64_t row = first; row < end; ++row) {
      const text::TokenSequence& sequence = eval_set_.sequences.read(size_t(row), buffer);
      const auto length = int64_t(sequence.input_ids.size());
      tokens += length;
      most.longest = std::max(most.longest, length);
      most.token_types = most.token_types || !sequence.token_type_ids.empty();
    }
    most.tokens = std::max(most.tokens, tokens);
  }
}

// The loss of a micro-batch, which is waited for; ends the run where it is not finite.
double Trainer::read(const MicroBatch& micro_batch) {
  const double value = micro_batch.loss.item();
  if (std::isfinite(value) || has_patience()) return value;
  state_.grad_norm = value;
  stop_at(value, first_not_finite(micro_batch));
}

// Whether a gradient is not finite, and neither the optimizer nor the scaler takes care of that.
bool Trainer::is_norm_refused() const {
  if (std::isfinite(state_.grad_norm)) return false;
  if (optimizer_.on_non_finite() == optim::OnNonFinite::skip) return false;
  // Halved so often, it is not the scale that makes them overflow.
  return !state_.scaler || state_.scaler->scale < 1;
}

void Trainer::check_norm(double loss, const NamedTensors& parameters) {
  if (is_norm_refused() && !has_patience()) stop_at(loss, optim::why_not_finite(parameters));
}

// Whether an update that is not finite can be left out. Where a parameter is not, none will be.
bool Trainer::has_patience() const {
  return state_.non_finite_in_a_row < arguments_.non_finite_patience &&
         std::ranges::all_of(model_.parameters(), [](const NamedTensor& parameter) {
           return all_finite(parameter.tensor);
         });
}

// The log keeps it; losses of updates before it that are not logged yet are in train_loss alone.
void Trainer::count_left_out(double loss) {
  ++state_.non_finite_steps;
  ++state_.non_finite_in_a_row;
  state_.loss = loss;
  state_.loss_since_log = loss * double(state_.global_step - state_.logged_step);
  log();
  warn(
      fmt::format("step {}: the loss is {} and the norm of all gradients {}; the update is left "
                  "out, {} of at most {} in a row",
                  state_.global_step, text_of(loss), text_of(state_.grad_norm),
                  state_.non_finite_in_a_row, arguments_.non_finite_patience));
}

void Trainer::count_loss(double loss) {
  state_.non_finite_in_a_row = 0;
  state_.loss = loss;
  state_.total_loss += loss;
  state_.loss_since_log += loss;
}

// Reads what updates have left on the device.
void Trainer::read_losses() {
  if (unread_.empty()) return;
  const Stopwatch waiting;
  std::vector<Update> updates;
  updates.swap(unread_);
  for (Update& update : updates) {
    const int64_t done = std::exchange(state_.global_step, update.step - 1);
    for (const MicroBatch& micro_batch : update.micro_batches)
      update.loss += micro_batch.share * read(micro_batch);
    state_.grad_norm = update.norm.item();
    const bool is_left_out = !std::isfinite(update.loss) || is_norm_refused();
    if (is_left_out && !has_patience())
      stop_at(update.loss, fmt::format("the norm of all gradients, {}", state_.grad_norm));
    if (state_.scaler)
      state_.scaler = scaler_.updated(*state_.scaler, !std::isfinite(state_.grad_norm));
    state_.global_step = update.step;
    if (is_left_out)
      count_left_out(update.loss);
    else
      count_loss(update.loss);
    state_.global_step = done;
  }
  if (optimizer_.finds_rate()) state_.learning_rate = optimizer_.last_lr(0).value_or(0);
  state_.seconds += waiting.seconds();
}

// Runs the forward again with the same dropout and says where the first NaN or infinity arose.
std::string Trainer::first_not_finite(const MicroBatch& micro_batch) const {
  for (const NamedTensor& parameter : model_.parameters())
    if (!all_finite(parameter.tensor)) return "parameter " + parameter.name;
  model_.generator() = micro_batch.generator;
  const PackedBatch batch = load_batch(train_set_, micro_batch.rows, model_.device());
  const NoGrad no_grad;
  const DetectAnomaly detect;
  try {
    loss_of(batch);
  } catch (const Error& error) {
    return error.what();
  }
  return "the loss alone";
}

// Ends the run before its weights are spoilt; the log keeps what happened.
void Trainer::stop_at(double loss, const std::string& reason) {
  const int64_t step = ++state_.global_step;  // counted for the log alone
  state_.loss = loss;
  state_.learning_rate = learning_rate_at_(step - 1);
  state_.loss_since_log = loss * double(step - state_.logged_step);
  unread_.clear();
  log();
  --state_.global_step;
  fail("step {}: the loss is {}{}; first not finite: {}; {}", step, text_of(loss),
       state_.non_finite_in_a_row == 0
           ? ""
           : fmt::format(" ({} in a row left out before it)", state_.non_finite_in_a_row),
       reason,
       autocast_ == DType::f16
           ? "f16 ends at 65504: bf16 does not, and a lower learning rate often helps"
           : "a lower learning rate or a longer warm-up often helps");
}

}  // namespace minim::train
