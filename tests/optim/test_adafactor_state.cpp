#include <algorithm>

#include <doctest/doctest.h>

#include "core/parallel.h"
#include "optim/adafactor.h"
#include "optim/adafactor_torch.h"
#include "optim/make_optimizer.h"
#include "optim/state_file.h"
#include "tests/optim/accounting.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

// What both forms of Adafactor keep, and what must hold for any gradients.

namespace {

// Matrices of several tiles, thin ones, a stack, a long vector, and parameters with nothing in
// them.
NamedTensors parameters(DType dtype = DType::f32) {
  NamedTensors all;
  for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{3, 0}, Shape{0}, Shape{1}, Shape{70001},
                             Shape{301, 403}, Shape{2, 40, 50}, Shape{1, 9}, Shape{9, 1}}) {
    Tensor p = convert(Tensor::from(noise(shape.numel(), 3), shape), dtype).clone();
    p.set_requires_grad();
    all.push_back({fmt::format("p{}", all.size()), p});
  }
  return all;
}

void set_gradients(const NamedTensors& parameters, int step, float scale = 1.0f) {
  for (const NamedTensor& p : parameters) {
    std::vector<float> values = noise(p.tensor.numel(), 11 + step);
    for (float& value : values)
      value *= scale;
    Tensor(p.tensor).set_grad(convert(Tensor::from(values, p.tensor.shape()), p.tensor.dtype()));
  }
}

std::vector<float> values_of(const NamedTensors& parameters) {
  std::vector<float> all;
  for (const NamedTensor& p : parameters)
    for (const float value : p.tensor.to_vector<float>())
      all.push_back(value);
  return all;
}

template <class Rule>
std::vector<float> trained(const typename Rule::Options& options = {}, float scale = 1.0f) {
  const NamedTensors all = parameters();
  Optimizer<Rule> optimizer(all, options);
  for (int step = 0; step < 4; ++step) {
    set_gradients(all, step, scale);
    optimizer.step();
  }
  return values_of(all);
}

template <class Rule>
void check_accounting(const typename Rule::Options& options) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const NamedTensors all = parameters(dtype);
    const int64_t before = memory::current(memory::Category::optimizer_state);
    Optimizer<Rule> optimizer(all, options);
    const StateSize predicted = state_size(optimizer);
    for (int step = 0; step < 2; ++step) {
      set_gradients(all, step);
      optimizer.step();
      CHECK(memory::current(memory::Category::optimizer_state) - before == predicted.bytes);
    }
  }
}

template <class Rule>
void check_resume(const typename Rule::Options& options) {
  const TemporaryFolder folder;
  const NamedTensors whole = parameters(), cut = parameters();
  Optimizer<Rule> uninterrupted(whole, options), first(cut, options), second(cut, options);
  for (int step = 0; step < 6; ++step) {
    set_gradients(whole, step);
    set_gradients(cut, step);
    uninterrupted.step();
    if (step == 2) {
      first.step();
      save_state(first, folder / "optimizer.safetensors");
      load_state(second, folder / "optimizer.safetensors");
    } else {
      step < 2 ? first.step() : second.step();
    }
  }
  CHECK(values_of(whole) == values_of(cut));
}

}  // namespace

TEST_CASE("adafactor state: a matrix costs its rows and columns, not their product") {
  const ParameterSpec w{"w", {768, 3072}, DType::f32};
  const StateSize size = state_size<AdafactorRule>({&w, 1});
  REQUIRE(size.entries.size() == 2);
  CHECK(size.entries[0].key == "exp_avg_sq_row");
  CHECK(size.entries[0].shape == Shape{768});
  CHECK(size.entries[1].key == "exp_avg_sq_col");
  CHECK(size.entries[1].shape == Shape{3072});
  CHECK(size.bytes == 4 * (768 + 3072));  // AdamW: 8 * 768 * 3072, 1,229 times as much
  CHECK(size.numbers == 2);               // step and RMS
  const ParameterSpec b{"b", {768}, DType::f32};
  CHECK(state_size<AdafactorRule>({&b, 1}).bytes == 4 * 768);
  CHECK(state_size<AdafactorRule>({&w, 1}, {.beta1 = 0.9}).bytes ==
        4 * (768 + 3072) + 4 * 768 * 3072);
}

TEST_CASE("adafactor state: DistilBERT: 178,712 elements, as Hugging Face's state holds") {
  // 116,294 in the rows and columns of 40 matrices, 62,210 of 64 vectors, step and RMS of 104
  // tensors: 0.68 MiB beside AdamW's 502.
  const auto model = distilbert();
  const StateSize size = state_size<AdafactorRule>(model);
  CHECK(size.elements == 116294 + 62210);
  CHECK(size.elements_with_numbers() == 178712);
  CHECK(size.bytes == 4 * (116294 + 62210));
  CHECK(size.elements_with_numbers() == measured("transformers Adafactor")["elements"]);
  CHECK(state_size<AdafactorRule>(model, {.beta1 = 0.9}).elements_with_numbers() ==
        measured("transformers Adafactor beta1")["elements"]);
  CHECK(state_size<AdafactorTorchRule>(model).elements_with_numbers() ==
        measured("torch.optim.Adafactor")["elements"]);
}

TEST_CASE("adafactor state: what a step allocates is what was predicted, to the byte") {
  check_accounting<AdafactorRule>({});
  check_accounting<AdafactorRule>({.beta1 = 0.9});
  check_accounting<AdafactorTorchRule>({});
}

TEST_CASE("adafactor state: a step works in a small part of the parameter's memory") {
  // Sums of columns for at most 64 parts, and one factor per column.
  Tensor p = Tensor::zeros({4096, 256});
  p.set_requires_grad();
  Adafactor optimizer({{"p", p}});
  set_gradient(p, 1.0);
  memory::reset_peak();
  const int64_t before = memory::current(memory::Category::workspace);
  optimizer.step();
  CHECK(memory::peak(memory::Category::workspace) - before <= p.bytes() / 60);
}

TEST_CASE("adafactor state: a run saved and resumed equals the run that went on, bit for bit") {
  check_resume<AdafactorRule>({});
  check_resume<AdafactorRule>({.beta1 = 0.9, .warmup_init = true});
  check_resume<AdafactorTorchRule>({});
}

TEST_CASE("adafactor state: a run does not go on under another rule or other options") {
  const NamedTensors all = {{"w", parameter(noise(6, 3), {2, 3})}};
  Adafactor saved(all);
  set_gradients(all, 0);
  saved.step();
  AdafactorTorch torch(all);
  CHECK(error_of([&] { torch.load_state_dict(saved.state_dict(), saved.metadata()); }) ==
        "adafactor_torch: the state was written by \"adafactor\"");
  Adafactor averaged(all, {.beta1 = 0.9});
  CHECK(error_of([&] {
          averaged.load_state_dict(saved.state_dict(), saved.metadata());
        }).starts_with("adafactor: beta1 is 0.9 for w, and was \"none\" when the state was"));
}

TEST_CASE("adafactor property: without eps1, gradients of any scale give the same steps") {
  // Powers of four scale averages and their roots exactly.
  const AdafactorRule::Options options = {.eps1 = 0.0};
  const auto expected = trained<AdafactorRule>(options);
  CHECK(trained<AdafactorRule>(options, 0x1p-20f) == expected);
  CHECK(trained<AdafactorRule>(options, 0x1p20f) == expected);
}

TEST_CASE("adafactor property: a gradient scale does what scaling the gradients would") {
  const NamedTensors direct = parameters(), scaled = parameters();
  const AdafactorRule::Options options = {.lr = 0.01, .eps1 = 0.25, .relative_step = false};
  Adafactor one(direct, options), other(scaled, options);
  set_gradients(direct, 0, 0.5f);
  set_gradients(scaled, 0);
  one.step(0.02);
  other.step(0.02, 0.5);
  CHECK(values_of(direct) == values_of(scaled));
}

TEST_CASE("adafactor property: the number of threads changes no bit") {
  const int threads = thread_count();
  set_thread_count(1);
  const auto expected = trained<AdafactorRule>({.beta1 = 0.9});
  set_thread_count(3);
  CHECK(trained<AdafactorRule>({.beta1 = 0.9}) == expected);
  set_thread_count(threads);
}

TEST_CASE("adafactor property: large matrices take the steps of the formula") {
  // Several tiles, in f64, against rows and columns summed in the plainest way.
  constexpr int64_t rows = 301, columns = 403;
  const Tensor p = convert(Tensor::from(noise(rows * columns, 3), {rows, columns}), DType::f64);
  Tensor(p).set_requires_grad();
  const auto before = p.to_vector<double>();
  const Tensor g = convert(Tensor::from(noise(rows * columns, 5), {rows, columns}), DType::f64);
  Tensor(p).set_grad(g);
  Adafactor optimizer({{"p", p}}, {.lr = 0.01, .scale_parameter = false, .relative_step = false});
  optimizer.step();
  std::vector<double> r(rows), c(columns), u = g.to_vector<double>();
  double mean = 0, size = 0;
  for (size_t k = 0; k < u.size(); ++k) {
    r[k / columns] += u[k] * u[k] / columns;
    c[k % columns] += u[k] * u[k] / rows;
    mean += u[k] * u[k] / (rows * columns);
  }
  for (size_t k = 0; k < u.size(); ++k) {
    u[k] /= std::sqrt(r[k / columns] * c[k % columns] / mean);
    size += u[k] * u[k] / (rows * columns);
  }
  double worst = 0;
  for (size_t k = 0; k < u.size(); ++k)
    worst = std::max(worst, std::abs(p.values<double>()[k] -
                                     (before[k] - 0.01 * u[k] / std::max(1.0, std::sqrt(size)))));
  CHECK(worst < 1e-13);
}

TEST_CASE("adafactor converges on a bowl whose curvatures are an outer product") {
  // f = sum_ij a_i b_j p_ij^2 / 2 with curvatures from 1 to 10,000, and a rate that falls to 0.
  const Tensor p = parameter(std::vector<double>(9, 1.0), {3, 3});
  Adafactor optimizer({{"p", p}}, {.lr = 0.05, .scale_parameter = false, .relative_step = false});
  for (int step = 0; step < 400; ++step) {
    std::vector<double> gradient;
    for (size_t i = 0; i < 3; ++i)
      for (size_t j = 0; j < 3; ++j)
        gradient.push_back(std::pow(10.0, double(i + j)) * p.values<double>()[i * 3 + j]);
    Tensor(p).set_grad(Tensor::from(gradient, {3, 3}));
    optimizer.step(0.05 * (1.0 - step / 400.0));
  }
  for (const double value : p.to_vector<double>())
    CHECK(std::abs(value) < 1e-3);
}

TEST_CASE("adafactor by name: at the rate given, as Hugging Face's Trainer makes it") {
  const auto make = [](std::string_view name, const OptimizerArguments& arguments) {
    return make_optimizer(name, {ParameterGroup{.parameters = {{"w", scalar(1.0)}}}}, arguments);
  };
  using Texts = std::vector<std::pair<std::string, std::string>>;
  const OptimizerArguments arguments = {
      .learning_rate = 0.5, .adam_beta1 = 0.75, .weight_decay = 0.25, .optim_args = ""};
  CHECK(make("adafactor", arguments)->options_of(0) == Texts{{"lr", "0.5"},
                                                             {"eps1", "1e-30"},
                                                             {"eps2", "0.001"},
                                                             {"clip_threshold", "1"},
                                                             {"decay_rate", "-0.8"},
                                                             {"beta1", "none"},
                                                             {"weight_decay", "0.25"},
                                                             {"scale_parameter", "false"},
                                                             {"relative_step", "false"},
                                                             {"warmup_init", "false"}});
  const auto chosen = make("adafactor", {.optim_args = "beta1=0.9,scale_parameter=True"});
  CHECK(chosen->options_of(0)[5].second == "0.9");
  CHECK(chosen->options_of(0)[7].second == "true");
  CHECK(error_of([&] { make("adafactor", {.optim_args = "relative_step=True"}); }) ==
        "optim_args: adafactor with relative_step finds the rate itself, but learning_rate is "
        "5e-05; set learning_rate to 0, or relative_step to False");
  CHECK(error_of([&] { make("adafactor", {.optim_args = "lr=1"}); }) ==
        "optim_args: lr is set by learning_rate");
  CHECK(make("adafactor_torch", arguments)->options_of(0)[0].second == "0.5");
}
