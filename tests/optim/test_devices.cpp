#include <algorithm>

#include <doctest/doctest.h>

#include "optim/adafactor.h"
#include "optim/adam8bit.h"
#include "optim/adamw.h"
#include "optim/clip.h"
#include "optim/grad_scaler.h"
#include "optim/make_optimizer.h"
#include "optim/moments.h"
#include "optim/sgd.h"
#include "optim/state_file.h"
#include "tests/core/cuda/needs_device.h"
#include "tests/optim/optim_testing.h"
#include "tests/optim/reference_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

// Every rule on a CUDA device against the same rule on the CPU.

namespace {

const Device cpu = Device::cpu(), gpu = Device::cuda();

std::unique_ptr<AnyOptimizer> make(std::string_view name, const NamedTensors& parameters,
                                   std::string options = "") {
  std::vector<ParameterGroup> groups(2);
  for (size_t i = 0; i < parameters.size(); ++i)
    groups[i % 2].parameters.push_back(parameters[i]);
  groups[1].weight_decay = 0.02;
  if (name.ends_with("8bit") && options.empty()) options = "min_8bit_size=200";
  if (name == "sgd" && options.empty()) options = "momentum=0.9";
  const double rate = options.starts_with("relative_step") ? 0 : 0.01;
  return make_optimizer(name, groups, {.learning_rate = rate, .optim_args = options});
}

// Shapes that are cut in every way: parts of a chunk, several chunks, stacks of matrices, rows
// longer than a block of threads, whole and broken blocks of codes.
NamedTensors parameters(Device device, DType dtype = DType::f32) {
  NamedTensors all;
  for (const Shape& shape : {Shape{40, 33}, Shape{700}, Shape{3, 5, 7}, Shape{}, Shape{1, 9},
                             Shape{256}, Shape{130, 70}, Shape{0, 3}, Shape{5, 1031}}) {
    const int64_t n = shape.numel();
    Tensor p = convert(Tensor::from(noise(n, int(all.size()) + 2), shape), dtype).to(device);
    p.set_requires_grad();
    all.push_back({fmt::format("p{}", all.size()), p});
  }
  return all;
}

void give_gradients(const NamedTensors& all, int step) {
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor& p = all[i].tensor;
    const auto values = noise(p.numel(), 10 * step + int(i) + 3);
    const Tensor gradient = convert(Tensor::from(values, p.shape()), p.dtype());
    // One parameter has none in one step, and so another bias correction from then on.
    Tensor(p).set_grad(i == 1 && step == 3 ? Tensor() : gradient.to(p.device()));
  }
}

// Largest relative difference between what two optimizers hold; codes must be equal.
double difference(const AnyOptimizer& a, const AnyOptimizer& b) {
  double worst = 0;
  const NamedTensors left = a.state_dict(), right = b.state_dict();
  REQUIRE(left.size() == right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    CAPTURE(left[i].name);
    REQUIRE(left[i].name == right[i].name);
    if (left[i].tensor.dtype() == DType::u8)
      CHECK(left[i].tensor.to_vector<uint8_t>() == right[i].tensor.to_vector<uint8_t>());
    else
      worst = std::max(worst, worst_error(left[i].tensor, right[i].tensor));
  }
  return worst;
}

double difference(const NamedTensors& a, const NamedTensors& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, worst_error(a[i].tensor, b[i].tensor));
  return worst;
}

// Ten steps on both devices with clipping, whose coefficient the device keeps to itself.
double ten_steps(std::string_view name, DType dtype, const std::string& options = "") {
  const NamedTensors here = parameters(cpu, dtype), there = parameters(gpu, dtype);
  const auto expected = make(name, here, options), got = make(name, there, options);
  double worst = 0;
  for (int step = 0; step < 10; ++step) {
    CAPTURE(step);
    give_gradients(here, step);
    give_gradients(there, step);
    const double norm = gradient_norm(here);
    const Clipping clipping = clip_on_device(there, 20.0);
    // Sums of f64 in another order.
    CHECK(std::abs(clipping.norm.item() - norm) <= 1e-12 * norm);
    expected->step({.gradient_scale = clip_coefficient(norm, 20.0)});
    got->step({.gradient_factor = clipping.coefficient});
    worst = std::max({worst, difference(here, there), difference(*expected, *got)});
  }
  return worst;
}

}  // namespace

// Element-wise rules do the same operations on both; compilers fuse other products with sums, an
// ulp of 6e-8 here and there. 8-bit Adam leaves them no choice. Adafactor's means are sums of
// thousands in another order, for which the bound is the one of its references. Ten steps add up.
TEST_CASE("every rule: ten steps on a device are those of the CPU" * needs_device) {
  for (const std::string_view name : optimizer_names()) {
    CAPTURE(name);
    const double worst = ten_steps(name, DType::f32);
    MESSAGE(name << ": largest relative difference " << worst);
    CHECK(worst <= (name.starts_with("adafactor") ? 2e-5 : 2e-6));
  }
}

TEST_CASE("every rule: f64 and half precision on a device" * needs_device) {
  for (const std::string_view name : optimizer_names())
    for (const auto& [dtype, bound] :
         {std::pair(DType::f64, 1e-11), {DType::f16, 2e-2}, {DType::bf16, 1e-1}}) {
      // A weight of 11 or 8 bits may round the other way, and every step after starts from there.
      CAPTURE(name);
      const auto& which = dtype;
      CAPTURE(name_of(which));
      const double worst = ten_steps(name, dtype, name.ends_with("8bit") ? "min_8bit_size=1" : "");
      // Codes and what is decoded from them are f32 also for f64 weights.
      CHECK(worst <= bound);
    }
}

TEST_CASE("every option of the rules on a device" * needs_device) {
  for (const auto& [name, options] : {std::pair<std::string, std::string>("adamw", "amsgrad=true"),
                                      {"adamw", "maximize=true"},
                                      {"adam", "amsgrad=true"},
                                      {"sgd", "momentum=0"},
                                      {"sgd", "momentum=0.9,nesterov=true"},
                                      {"adafactor", "beta1=0.9"},
                                      {"adafactor", "scale_parameter=false,clip_threshold=0.1"},
                                      {"adafactor_torch", "maximize=true"}}) {
    const auto& which = name;
    CAPTURE(which);
    const auto& how = options;
    CAPTURE(how);
    CHECK(ten_steps(name, DType::f32, options) <= 2e-5);
  }
}

// Nothing is near here: every bit of weights, scales and codes is the same.
TEST_CASE("8-bit adam: every bit is the CPU's, whatever the block, the map and the gradients" *
          needs_device) {
  for (const std::string options :
       {"block_size=64", "block_size=128", "block_size=256", "block_size=512", "block_size=1024",
        "block_size=2048", "block_size=4096", "code_map=linear", "code_map=fp8_e4m3",
        "code_map=fp8_e5m2", "behaviour=bitsandbytes", "behaviour=bitsandbytes_floor"}) {
    CAPTURE(options);
    CHECK(ten_steps("adamw8bit", DType::f32, "min_8bit_size=1," + options) == 0);
  }
}

TEST_CASE("8-bit adam: unsound gradients are left alone on a device, and counted" * needs_device) {
  std::vector<float> values = noise(5000, 7);
  values[3] = NAN;
  values[700] = INFINITY;
  values[4999] = 3e18f;
  std::vector<std::vector<float>> weights;
  for (const Device device : {cpu, gpu}) {
    Tensor p = Tensor::from(noise(5000, 2), {5000}, device);
    p.set_requires_grad();
    Adam8bit optimizer({{"p", p}}, {});
    for (int step = 0; step < 2; ++step) {
      p.set_grad(Tensor::from(values, {5000}, device));
      optimizer.step();
    }
    CHECK(optimizer.state("p").skipped == 6);
    weights.push_back(p.to_vector<float>());
  }
  CHECK(weights[0] == weights[1]);
}

TEST_CASE("state lies beside its parameter, as much as was predicted" * needs_device) {
  for (const std::string_view name : optimizer_names()) {
    CAPTURE(name);
    const NamedTensors all = parameters(gpu);
    using memory::Category;
    const int64_t before = memory::current(Category::optimizer_state, gpu);
    const int64_t on_cpu = memory::current(Category::optimizer_state);
    const auto optimizer = make(name, all);
    give_gradients(all, 0);
    optimizer->step();
    CHECK(memory::current(Category::optimizer_state, gpu) - before ==
          optimizer->state_size().bytes);
    CHECK(memory::current(Category::optimizer_state) == on_cpu);
  }
}

TEST_CASE("a state goes from the CPU to a device and back, by hand and as a file" * needs_device) {
  const TemporaryFolder folder;
  for (const std::string_view name : optimizer_names()) {
    CAPTURE(name);
    const NamedTensors here = parameters(cpu), there = parameters(gpu), again = parameters(cpu);
    const auto first = make(name, here), second = make(name, there), third = make(name, again);
    for (int step = 0; step < 2; ++step) {
      give_gradients(here, step);
      first->step();
    }
    second->load_state_dict(first->state_dict(), first->metadata());
    CHECK(difference(*first, *second) == 0);
    const std::string path = folder / "state.safetensors";
    save_state(*second, path);
    load_state(*third, path);
    CHECK(difference(*first, *third) == 0);

    // And the next step there is the one that would have followed here.
    for (size_t i = 0; i < here.size(); ++i)
      copy(there[i].tensor, here[i].tensor);
    give_gradients(here, 2);
    give_gradients(there, 2);
    first->step();
    second->step();
    CHECK(difference(here, there) <= (name.starts_with("adafactor") ? 5e-6 : 1e-6));
  }
}

TEST_CASE("moments are decoded from a device, and copied between optimizers on it" * needs_device) {
  const NamedTensors all = parameters(gpu);
  AdamW full(all);
  Adam8bit coded(all, {.min_8bit_size = 200});
  give_gradients(all, 0);
  full.step();
  copy_moments(full, coded);
  const Tensor exact = moments_of(full, "p0").exp_avg, near = moments_of(coded, "p0").exp_avg;
  const auto a = exact.to_vector<float>(), b = near.to_vector<float>();
  for (size_t i = 0; i < a.size(); ++i)
    CHECK(std::abs(a[i] - b[i]) <= 0.1f * 0.02f);  // of moments up to 0.1
}

TEST_CASE("more groups than fit a launch are stepped all the same" * needs_device) {
  const auto run = [](Device device) {
    std::vector<ParameterGroup> groups;
    for (int i = 0; i < 40; ++i) {
      Tensor p = Tensor::from(noise(100, i + 2), {100}, device);
      p.set_requires_grad();
      p.set_grad(Tensor::full({100}, 1.0, DType::f32, device));
      groups.push_back({.parameters = {{fmt::format("p{}", i), p}}, .lr = 0.01 * i});
    }
    Sgd optimizer(groups, {.lr = 1.0});
    optimizer.step();
    std::vector<float> all;
    for (const auto& [name, p, state] : optimizer.items())
      for (const float value : p.to_vector<float>())
        all.push_back(value);
    return Tensor::from(all, {4000});
  };
  CHECK(worst_error(run(gpu), run(cpu)) <= 2e-7);
}

TEST_CASE("parameters that do not lie at multiples of 16 bytes are stepped one by one" *
          needs_device) {
  const auto run = [](Device device, const auto& make_optimizer_for) {
    const Tensor memory = Tensor::from(noise(6001, 2), {6001}, device);
    Tensor p = memory.view({6000}, {1}, 1);
    p.set_requires_grad();
    p.set_grad(Tensor::from(noise(6000, 3), {6000}, device));
    const auto optimizer = make_optimizer_for(NamedTensors{{"p", p}});
    optimizer->step();
    CHECK(memory.to_vector<float>()[0] == noise(1, 2)[0]);
    return p.to(cpu).clone();
  };
  const auto adamw = [](NamedTensors p) { return std::make_unique<AdamW>(p); };
  const auto adam8bit = [](NamedTensors p) { return std::make_unique<Adam8bit>(p); };
  CHECK(worst_error(run(gpu, adamw), run(cpu, adamw)) <= 2e-7);
  CHECK(worst_error(run(gpu, adam8bit), run(cpu, adam8bit)) == 0);
}

TEST_CASE("norms, clipping and the search for what is not finite work on a device" * needs_device) {
  const NamedTensors here = parameters(cpu), there = parameters(gpu);
  give_gradients(here, 0);
  give_gradients(there, 0);
  const double norm = gradient_norm(here);
  CHECK(std::abs(gradient_norm(there) - norm) <= 1e-12 * norm);
  CHECK(std::abs(clip_grad_norm(there, 1.0) - norm) <= 1e-12 * norm);
  CHECK(std::abs(gradient_norm(there) - 1.0) <= 1e-5);
  const Clipping on_cpu = clip_on_device(here, 1.0);
  CHECK(on_cpu.coefficient.item() == clip_coefficient(norm, 1.0));
  clip_grad_value(there, 1e-4);
  CHECK(std::ranges::max(there[0].tensor.grad().to_vector<float>()) <= 1e-4f);

  std::vector<float> values = noise(700, 2);
  values[650] = NAN;
  Tensor(there[1].tensor).set_grad(Tensor::from(values, {700}, gpu));
  CHECK(find_non_finite(there)->to_string() == "the gradient of p1 holds 1 NaN among 700 elements");
  const auto optimizer = make("adamw", there);
  optimizer->set_on_non_finite(OnNonFinite::skip);
  CHECK_FALSE(optimizer->step());
}

// Nobody waits for the device in between: what it left out is known when the state is read.
TEST_CASE("every rule: a scale on a device, and steps that it leaves out, are those of the CPU" *
          needs_device) {
  const bool overflows[] = {true, false, true, true, false, false, false, true, false};
  std::vector<std::string> all;
  for (const std::string_view name : optimizer_names())
    all.emplace_back(name);
  all.emplace_back("adafactor relative_step=true,warmup_init=true");
  for (const std::string& entry : all) {
    CAPTURE(entry);
    const std::string name = entry.substr(0, entry.find(' '));
    const std::string options = name == entry ? "" : entry.substr(name.size() + 1);
    const std::optional<double> lr = options.empty() ? std::optional(0.01) : std::nullopt;
    const NamedTensors here = parameters(cpu), there = parameters(gpu);
    const auto expected = make(name, here, options), got = make(name, there, options);
    GradScaler of_cpu({.init_scale = 8, .growth_interval = 3}), of_gpu = of_cpu;
    of_gpu.to(gpu);
    CHECK(of_gpu.scale(Tensor::full({}, 0.5, DType::f32, gpu)).item() == 4);
    for (int step = 0; step < 9; ++step) {
      give_gradients(here, 4);
      give_gradients(there, 4);
      if (overflows[step])
        for (const NamedTensors& parameters : {here, there})
          Tensor(parameters[0].tensor)
              .set_grad(parameters[0].tensor.new_full({40, 33}, INFINITY, DType::f32));
      const double norm = of_cpu.unscaled_norm(here);
      of_cpu.step(
          *expected,
          {.lr = lr, .gradient_scale = clip_coefficient(norm, 20.0), .gradient_norm = norm});
      of_cpu.update();
      const Clipping clipping = of_gpu.clip_on_device(there, 20.0);
      of_gpu.step(*got, {.lr = lr, .gradient_factor = clipping.coefficient});
      of_gpu.update();
    }
    CHECK(of_gpu.state() == of_cpu.state());
    CHECK(of_gpu.skipped_steps() == 4);
    // The bounds of ten steps, above; corrections are computed there, an ulp of f64 away at most.
    const double bound = name.starts_with("adafactor") ? 2e-5 : 2e-6;
    CHECK(difference(here, there) <= bound);
    CHECK(difference(*expected, *got) <= bound);
    CHECK(got->last_lr(0).has_value() == expected->last_lr(0).has_value());

    // Read before it was known, a state is that of the steps that were made.
    give_gradients(there, 4);
    const Tensor nan = Tensor::full({1}, NAN, DType::f64, gpu);
    NamedTensors before = got->state_dict();
    for (NamedTensor& kept : before)
      kept.tensor = kept.tensor.clone();
    got->set_on_non_finite(OnNonFinite::skip);
    CHECK(got->step({.lr = lr, .gradient_factor = nan, .factor_tells_non_finite = true}));
    CHECK(got->skipped_steps() == 1);
    const NamedTensors after = got->state_dict();
    for (size_t i = 0; i < after.size(); ++i)
      CHECK(after[i].tensor.to_vector<double>() == before[i].tensor.to_vector<double>());
  }
}

TEST_CASE("an optimizer's parameters are on one device, and so is the factor" * needs_device) {
  const Tensor p = parameter(noise(4, 2), {4});
  Tensor q = Tensor::from(noise(4, 2), {4}, gpu);
  q.set_requires_grad();
  CHECK(error_of([&] {
          AdamW({{"p", p}, {"q", q}});
        }) == "adamw: parameter q is on cuda:0, p on cpu; use an optimizer for each device");
  AdamW optimizer({{"p", p}});
  CHECK(error_of([&] {
          optimizer.step({.gradient_factor = Tensor::full({1}, 1, DType::f64, gpu)});
        }) == "adamw: gradient_factor is f64 [1] on cuda:0, must be one f64 on cpu");
}
