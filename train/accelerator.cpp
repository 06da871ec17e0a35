#include "train/accelerator.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "core/file.h"
#include "core/printable.h"
#include "core/safetensors.h"
#include "optim/clip.h"
#include "optim/state_file.h"
#include "train/staged_folder.h"

namespace minim::train {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

std::optional<DType> autocast_dtype_for(const std::string& mixed_precision) {
  if (mixed_precision == "no") return std::nullopt;
  if (mixed_precision == "bf16") return DType::bf16;
  check(mixed_precision == "fp16", "mixed_precision: there is no {}; there are no, bf16 and fp16",
        printable(mixed_precision));
  return DType::f16;
}

}  // namespace

Accelerator::Accelerator(AcceleratorOptions options)
    : options_(std::move(options)),
      autocast_(autocast_dtype_for(options_.mixed_precision)),
      scaler_({.enabled = autocast_ == DType::f16}) {
  check(options_.gradient_accumulation_steps >= 1,
        "gradient_accumulation_steps: must be at least 1, is {}",
        options_.gradient_accumulation_steps);
}

void Accelerator::set_model(const nn::Module& model) {
  check(!model_, "accelerator: prepare: there is a model already; a second needs its own");
  model_ = model;
  for (const DataLoader& loader : loaders_)
    loader.to(model.device());
}

void Accelerator::set_optimizer(optim::AnyOptimizer& optimizer) {
  check(optimizer_ == nullptr,
        "accelerator: prepare: there is an optimizer already; a second needs its own");
  optimizer_ = &optimizer;
}

AcceleratedScheduler Accelerator::prepare_one(const optim::Schedule& schedule) {
  check(!schedule_, "accelerator: prepare: there is a schedule already; a second needs its own");
  schedule_ = schedule;
  return AcceleratedScheduler(*this);
}

DataLoader Accelerator::prepare_one(const DataLoader& loader) {
  if (model_) loader.to(model_->device());
  loaders_.push_back(loader);
  return loader;
}

void Accelerator::accumulate(const nn::Module&) {
  const int64_t most = options_.gradient_accumulation_steps;
  // The loader whose loop this is: that of an evaluation within is over by now.
  const auto active = std::ranges::find_if(loaders_, &DataLoader::is_active);
  if (active == loaders_.end()) {
    batches_ = batches_ % most + 1;
    sync_gradients_ = batches_ == most;
    share_ = 1.0 / double(most);
    return;
  }
  const int64_t batch = active->next_batch() - 1, first = batch / most * most;
  const int64_t end = std::min(first + most, active->size());
  int64_t total = 0;
  for (int64_t i = first; i < end; ++i)
    total += counted_rows(active->dataset(), active->rows(i));
  sync_gradients_ = batch + 1 == end;
  share_ = double(counted_rows(active->dataset(), active->rows(batch))) /
           double(std::max<int64_t>(total, 1));
}

void Accelerator::backward(const Tensor& loss) {
  scaler_.scale(share_ == 1.0 ? loss : loss * share_).backward();
}

bool Accelerator::updates_exactly(const NamedTensors& parameters) const {
  if (optimizer_ == nullptr) return false;
  std::vector<std::string> given, updated;
  for (const NamedTensor& parameter : parameters)
    if (parameter.tensor.requires_grad()) given.push_back(parameter.name);
  for (const optim::ParameterGroup& group : optimizer_->groups())
    for (const NamedTensor& parameter : group.parameters)
      updated.push_back(parameter.name);
  std::ranges::sort(given);
  std::ranges::sort(updated);
  return given == updated;
}

double Accelerator::clip_grad_norm(const NamedTensors& parameters, double max_norm) {
  if (!sync_gradients_) return 0;
  if (!updates_exactly(parameters)) {
    check(!scaler_.is_enabled(),
          "clip_grad_norm: under fp16 the parameters must be those of the prepared optimizer");
    return optim::clip_grad_norm(parameters, max_norm);
  }
  const double norm = scaler_.unscaled_norm(parameters);
  const bool skips =
      scaler_.is_enabled() || optimizer_->on_non_finite() == optim::OnNonFinite::skip;
  if (!std::isfinite(norm) && !skips) fail("clip_grad_norm: {}", optim::why_not_finite(parameters));
  // Applied as the optimizer reads the gradients: that spares a pass over them.
  step_.gradient_scale = optim::clip_coefficient(norm, max_norm);
  step_.gradient_norm = norm;
  return norm;
}

void AcceleratedOptimizer::step() {
  Accelerator& a = *accelerator_;
  if (!a.sync_gradients_) return;
  if (a.schedule_ && !a.optimizer_->finds_rate()) a.step_.lr = a.schedule_(a.schedule_step_);
  a.was_skipped_ = !a.scaler_.step(*a.optimizer_, a.step_);
  a.scaler_.update();
  a.step_ = {};
}

void AcceleratedOptimizer::zero_grad() {
  if (accelerator_->sync_gradients_) accelerator_->optimizer_->zero_grad();
}

double AcceleratedOptimizer::learning_rate() const {
  const Accelerator& a = *accelerator_;
  if (a.schedule_) return a.schedule_(a.schedule_step_);
  return a.optimizer_->last_lr(0).value_or(0);
}

void AcceleratedScheduler::step() {
  if (accelerator_->sync_gradients_) ++accelerator_->schedule_step_;
}

double AcceleratedScheduler::get_last_lr() const {
  return accelerator_->schedule_(accelerator_->schedule_step_);
}

void Accelerator::save_state(const std::string& folder) const {
  check(sync_gradients_,
        "accelerator: save_state: an update is being accumulated; save after the optimizer's step");
  const fs::path place = fs::absolute(folder).lexically_normal();
  const fs::path path = place.has_filename() ? place : place.parent_path();
  const StagedFolder staged(path.parent_path().string());
  json state = {{"scheduler", {{"last_epoch", schedule_step_}}}};
  state["loaders"] = json::array();
  for (const DataLoader& loader : loaders_)
    state["loaders"].push_back({{"epoch", loader.epoch()}, {"batch", loader.next_batch()}});
  if (model_) {
    const Generator& generator = model_->generator();
    state["generator"] = {{"seed", generator.seed}, {"offset", generator.offset}};
    write_safetensors(staged.path() + "/model.safetensors", model_->state_dict());
  }
  if (const auto& scaler = scaler_.state(); scaler_.is_enabled())
    state["scaler"] = {{"scale", scaler.scale},
                       {"_growth_tracker", scaler.growth_tracker},
                       {"skipped_steps", scaler.skipped_steps}};
  if (optimizer_ != nullptr)
    optim::save_state(*optimizer_, staged.path() + "/optimizer.safetensors");
  write_whole_file(staged.path() + "/accelerator_state.json", state.dump(2) + "\n");
  staged.become(path.filename().string());
}

void Accelerator::load_state(const std::string& folder) {
  const std::string path = folder + "/accelerator_state.json";
  int64_t schedule_step = 0;
  Generator generator;
  optim::GradScaler::State scaler;
  std::vector<std::pair<int64_t, int64_t>> places;
  try {
    const json state = json::parse(read_whole_file(path));
    schedule_step = state.at("scheduler").at("last_epoch");
    for (const json& place : state.at("loaders"))
      places.emplace_back(place.at("epoch"), place.at("batch"));
    if (scaler_.is_enabled()) {
      const json& own = state.at("scaler");
      scaler = {own.at("scale"), own.at("_growth_tracker"), own.at("skipped_steps")};
    }
    if (model_) generator = {state.at("generator").at("seed"), state.at("generator").at("offset")};
  } catch (const json::exception& error) {
    fail("{}: is no such file as save_state writes ({})", path, error.what());
  }
  check(places.size() == loaders_.size(),
        "{}: has the places of {} data loaders, but {} were prepared", path, places.size(),
        loaders_.size());
  NamedTensors values;
  if (model_) values = read_safetensors(folder + "/model.safetensors").named_tensors();
  if (optimizer_ != nullptr) optim::load_state(*optimizer_, folder + "/optimizer.safetensors");
  if (model_) {
    model_->load_state_dict(values);
    model_->generator() = generator;
    model_->zero_grad();
  }
  for (size_t i = 0; i < places.size(); ++i)
    // A loop that was at its last batch has none left.
    if (const auto [epoch, batch] = places[i]; batch == loaders_[i].size())
      loaders_[i].seek(epoch + 1, 0);
    else
      loaders_[i].seek(epoch, batch);
  schedule_step_ = schedule_step;
  if (scaler_.is_enabled()) scaler_.load_state(scaler);
  step_ = {};
  batches_ = 0;
  sync_gradients_ = true;
}

}  // namespace minim::train
