#include <fstream>

#include <doctest/doctest.h>

#include "core/safetensors.h"
#include "optim/adamw.h"
#include "optim/state_file.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

namespace {

NamedTensors two_parameters(DType dtype = DType::f32) {
  NamedTensors parameters = {{"w", Tensor::from(noise(12, 2), {3, 4})},
                             {"b", Tensor::from(noise(3, 3), {3})}};
  for (NamedTensor& p : parameters) {
    p.tensor = convert(p.tensor, dtype);
    p.tensor.set_requires_grad();
  }
  return parameters;
}

}  // namespace

TEST_CASE("state files: a run saved and resumed equals the run that went on, bit for bit") {
  for (const bool amsgrad : {false, true})
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      const TemporaryFolder folder;
      const AdamWRule::Options options = {.weight_decay = 0.1, .amsgrad = amsgrad};
      const NamedTensors whole = two_parameters(dtype), cut = two_parameters(dtype);
      AdamW uninterrupted(decay_groups(whole, 0.1), options),
          first(decay_groups(cut, 0.1), options);
      for (int step = 0; step < 3; ++step) {
        take_noisy_step(uninterrupted, whole, step);
        take_noisy_step(first, cut, step);
      }
      save_state(first, folder / "optimizer.safetensors");
      AdamW second(decay_groups(cut, 0.1), options);
      load_state(second, folder / "optimizer.safetensors");
      for (int step = 3; step < 8; ++step) {
        take_noisy_step(uninterrupted, whole, step);
        take_noisy_step(second, cut, step);
      }
      for (size_t i = 0; i < whole.size(); ++i)
        CHECK(whole[i].tensor.to_vector<double>() == cut[i].tensor.to_vector<double>());
      CHECK(second.state("w").step == 8);
    }
}

TEST_CASE("state files: the file says by itself what it holds") {
  const TemporaryFolder folder;
  const NamedTensors parameters = two_parameters();
  AdamW optimizer({ParameterGroup{.parameters = {parameters[0]}, .weight_decay = 0.25},
                   ParameterGroup{.parameters = {parameters[1]}, .lr = 0.5}});
  take_noisy_step(optimizer, parameters, 0);
  save_state(optimizer, folder / "optimizer.safetensors");
  const Checkpoint file = read_safetensors(folder / "optimizer.safetensors");
  CHECK(file.metadata() == Metadata{{"format", "minim-optimizer"}, {"version", "1"},
                                    {"optimizer", "adamw"},        {"groups", "2"},
                                    {"group.0.parameters", "w"},   {"group.0.lr", "0.001"},
                                    {"group.0.beta1", "0.9"},      {"group.0.beta2", "0.999"},
                                    {"group.0.eps", "1e-08"},      {"group.0.weight_decay", "0.25"},
                                    {"group.0.amsgrad", "false"},  {"group.0.maximize", "false"},
                                    {"group.1.parameters", "b"},   {"group.1.lr", "0.5"},
                                    {"group.1.beta1", "0.9"},      {"group.1.beta2", "0.999"},
                                    {"group.1.eps", "1e-08"},      {"group.1.weight_decay", "0.01"},
                                    {"group.1.amsgrad", "false"},  {"group.1.maximize", "false"}});
  CHECK(file.tensors().size() == 6);
  CHECK(file.tensor("w.exp_avg").shape() == Shape{3, 4});
  CHECK(file.tensor("b.exp_avg_sq").dtype() == DType::f32);
  CHECK(file.tensor("b.step").dtype() == DType::i64);
  CHECK(file.tensor("b.step").shape() == Shape{});
}

TEST_CASE("state files: a parameter that had no gradient has no state after loading either") {
  const NamedTensors parameters = two_parameters();
  AdamW saved(parameters), loaded(parameters);
  Tensor(parameters[0].tensor).set_grad(Tensor::zeros({3, 4}));
  saved.step();
  set_gradient(parameters[1].tensor, 1.0);
  loaded.step();
  loaded.load_state_dict(saved.state_dict(), saved.metadata());
  CHECK(loaded.state("w").step == 1);
  CHECK(loaded.items()[1].state == nullptr);
}

TEST_CASE("state files: loading copies, and the memory counts as optimizer state") {
  const NamedTensors parameters = two_parameters();
  AdamW saved(parameters);
  take_noisy_step(saved, parameters, 0);
  const int64_t before = memory::current(memory::Category::optimizer_state);
  AdamW loaded(parameters);
  loaded.load_state_dict(saved.state_dict(), saved.metadata());
  CHECK(memory::current(memory::Category::optimizer_state) - before == state_size(loaded).bytes);
  CHECK_FALSE(loaded.state("w").exp_avg.is_same(saved.state("w").exp_avg));
  loaded.state("w").exp_avg.values<float>()[0] = 99.0f;
  CHECK(saved.state("w").exp_avg.values<float>()[0] != 99.0f);
}

TEST_CASE("state files: step counters go past 2^31") {
  const NamedTensors parameters = two_parameters();
  AdamW optimizer(parameters);
  take_noisy_step(optimizer, parameters, 0);
  NamedTensors state;
  for (const auto& [name, tensor] : optimizer.state_dict())
    state.push_back({name, name.ends_with("step") ? Tensor::from({int64_t(1) << 33}, {}) : tensor});
  optimizer.load_state_dict(state, optimizer.metadata());
  take_noisy_step(optimizer, parameters, 1);
  CHECK(optimizer.state("w").step == (int64_t(1) << 33) + 1);
  for (const float value : parameters[0].tensor.to_vector<float>())
    CHECK(std::isfinite(value));
}

TEST_CASE("state files: what does not fit is refused with names, and the old state stays") {
  const NamedTensors parameters = two_parameters();
  AdamW optimizer(parameters);
  take_noisy_step(optimizer, parameters, 0);
  const NamedTensors good = optimizer.state_dict();
  const Metadata metadata = optimizer.metadata();
  take_noisy_step(optimizer, parameters, 1);
  const auto error = [&](NamedTensors tensors, Metadata data) {
    return error_of([&] { optimizer.load_state_dict(tensors, data); });
  };
  const auto with = [&](const std::string& key, const std::string& value) {
    Metadata changed = metadata;
    changed[key] = value;
    return changed;
  };
  const auto without = [&](const std::string& name) {
    NamedTensors rest;
    for (const NamedTensor& tensor : good)
      if (tensor.name != name) rest.push_back(tensor);
    return rest;
  };
  const auto replaced = [&](const std::string& name, const Tensor& tensor) {
    NamedTensors changed = without(name);
    changed.push_back({name, tensor});
    return changed;
  };

  CHECK(error(good, {}) ==
        "adamw: the state's metadata has no \"optimizer\"; it was not written by an optimizer");
  CHECK(error(good, with("optimizer", "adafactor")) ==
        "adamw: the state was written by \"adafactor\"");
  CHECK(error(good, with("version", "2")) == "adamw: the state has version \"2\", must be 1");
  CHECK(error(good, with("groups", "99999999999")) ==
        "adamw: the state's metadata has groups = \"99999999999\", which its other entries do not "
        "bear out");
  CHECK(error(good, with("groups", "2")) ==
        "adamw: the state's metadata has no \"group.1.parameters\"; it was not written by an "
        "optimizer");
  CHECK(error(good, with("group.0.parameters", "w")) == "adamw: the state has no parameter b");
  CHECK(error(good, with("group.0.parameters", "w\nb\nc")) ==
        "adamw: the state has parameter \"c\", the optimizer has not");
  CHECK(error(good, with("group.0.beta2", "0.99")) ==
        "adamw: beta2 is 0.999 for w, and was \"0.99\" when the state was written; set it so, or "
        "load with keep_mine");
  CHECK(error(without("w.exp_avg"), metadata) == "adamw: the state has no w.exp_avg");
  CHECK(error(without("w.step"), metadata) == "adamw: the state has no w.step");
  CHECK(error(replaced("w.exp_avg", Tensor::zeros({4, 3})), metadata) ==
        "adamw: the state's w.exp_avg is f32 [4, 3], must be f32 [3, 4]");
  CHECK(error(replaced("w.exp_avg", Tensor::zeros({3, 4}, DType::bf16)), metadata) ==
        "adamw: the state's w.exp_avg is bf16 [3, 4], must be f32 [3, 4]");
  CHECK(error(replaced("w.step", Tensor::from({int64_t(-1)}, {})), metadata) ==
        "adamw: the state's w.step is -1, must not be negative");
  CHECK(error(replaced("w.max_exp_avg_sq", Tensor::zeros({3, 4})), metadata) ==
        "adamw: the state has \"w.max_exp_avg_sq\", which adamw with these options does not keep");
  CHECK(optimizer.state("w").step == 2);

  optimizer.load_state_dict(good, with("group.0.lr", "1"), OtherOptions::keep_mine);
  CHECK(optimizer.state("w").step == 1);
}

TEST_CASE("state files: a file that is cut short is refused by its path") {
  const TemporaryFolder folder;
  const NamedTensors parameters = two_parameters();
  AdamW optimizer(parameters);
  take_noisy_step(optimizer, parameters, 0);
  const std::string path = folder / "optimizer.safetensors";
  save_state(optimizer, path);
  std::string bytes;
  {
    std::ifstream in(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (const size_t size : {size_t(0), size_t(7), bytes.size() / 2, bytes.size() - 1}) {
    std::ofstream(path, std::ios::binary) << bytes.substr(0, size);
    CHECK(error_of([&] { load_state(optimizer, path); }).find(path) != std::string::npos);
  }
  std::ofstream(path, std::ios::binary) << bytes;
  AdamW other(NamedTensors{{"v", scalar(1)}});
  CHECK(error_of([&] { load_state(other, path); }) ==
        path + ": adamw: the state has parameter \"b\", the optimizer has not");
}
