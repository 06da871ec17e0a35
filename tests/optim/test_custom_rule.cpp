#include <doctest/doctest.h>

#include "examples/custom_optimizer/lion.h"
#include "optim/adamw.h"
#include "optim/clip.h"
#include "optim/optimizer.h"
#include "optim/state_file.h"
#include "tests/core/cuda/needs_device.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

namespace {

// All that a rule of one's own may have: this one walks by the sign of the gradient, a
// step that a table shared by all parameters gives for each of the first three updates, and keeps a
// count per row and the last norm.
struct SignRule {
  static constexpr std::string_view name = "sign";
  struct Options {
    double lr = 0.5;
    std::string mode = "all";
    int64_t rows = 0;
  };
  struct State {
    Tensor flips;
    int64_t step = 0;
    double norm = 0;
  };
  Tensor table;

  static void list_options(Options& o, OptionFields& fields) {
    fields("lr", o.lr);
    fields("mode", o.mode);
    fields("rows", o.rows);
  }
  static void list_state(State& s, const ParameterSpec& parameter, const Options&,
                         StateFields& fields) {
    fields("flips", s.flips, {parameter.shape[0]}, DType::u8);
    fields("step", s.step);
    fields("norm", s.norm);
  }
  void shared_state(StateFields& fields) { fields("table", table, {4}, DType::f32); }
  static void validate(const Options&) {}
  void update(const Update& u, State& s, const Options& o) {
    if (table.values<float>()[0] == 0) table.fill_(2.0);
    ++s.step;
    s.norm = 3.25;
    s.flips.values<uint8_t>()[0] = uint8_t(s.step);
    for (int64_t i = 0; i < u.parameter.numel(); ++i)
      u.parameter.data<float>()[i] -=
          float(o.lr) * table.values<float>()[0] * (u.gradient.data<float>()[i] > 0 ? 1 : -1);
  }
};

}  // namespace

TEST_CASE(
    "lion, the example of a rule of one's own: three steps by hand, and half of AdamW's state") {
  const Tensor p = scalar(1.0);
  custom::Lion optimizer({{"p", p}}, {.lr = 0.125, .weight_decay = 0.5});
  const auto step = [&](double gradient) {
    set_gradient(p, gradient);
    optimizer.step();
    return p.item();
  };
  // direction 0.1 * 0.5 = 0.05 > 0:                    p = 1 * (1 - 0.125 * 0.5) - 0.125 = 0.8125
  CHECK(step(0.5) == 0.8125);
  // m = 0.01 * 0.5 = 0.005;  0.9 * 0.005 - 0.1 * 0.04 = 0.0005 > 0, against the gradient's sign
  CHECK(step(-0.04) == 0.8125 * 0.9375 - 0.125);
  // m = 0.99 * 0.005 - 0.01 * 0.04 = 0.00455;  0.9 * 0.00455 - 0.1 * 0.06 < 0
  CHECK(optimizer.state("p").exp_avg.item() == doctest::Approx(0.00455).epsilon(1e-14));
  CHECK(step(-0.06) == (0.8125 * 0.9375 - 0.125) * 0.9375 + 0.125);

  const Tensor w = Tensor::zeros({3, 5});
  Tensor(w).set_requires_grad();
  CHECK(state_size(custom::Lion({{"w", w}})).bytes == 3 * 5 * 4);
  CHECK(state_size(AdamW({{"w", w}})).bytes == 3 * 5 * 8);
}

// It knows nothing of devices: each parameter is a launch of its own, and a factor that a device
// has is waited for.
TEST_CASE("lion: ten steps on a device, clipped by its norm there, are those of the CPU" *
          needs_device) {
  std::vector<float> after[2];
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    Tensor p = Tensor::from(noise(1300, 2), {26, 50}, device);
    p.set_requires_grad();
    custom::Lion optimizer({{"p", p}}, {.lr = 0.01, .weight_decay = 0.1});
    for (int step = 0; step < 10; ++step) {
      p.set_grad(Tensor::from(noise(1300, step + 3), {26, 50}, device));
      optimizer.step({.gradient_factor = clip_on_device({{"p", p}}, 1.0).coefficient});
    }
    CHECK(optimizer.state("p").exp_avg.device() == device);
    after[device.is_cuda()] = p.to_vector<float>();
  }
  // Signs are the same, so that only the rounding of decay may differ.
  for (size_t i = 0; i < after[0].size(); ++i)
    CHECK(std::abs(after[0][i] - after[1][i]) <= 1e-6f);
}

TEST_CASE("a rule of the user's own gets groups, accounting, lookup and files") {
  const Tensor w = parameter(std::vector<float>{1, 1, 1, 1}, {2, 2});
  const int64_t before = memory::current(memory::Category::optimizer_state);
  Optimizer<SignRule> optimizer(NamedTensors{{"w", w}});
  const StateSize predicted = state_size(optimizer);
  CHECK(predicted.bytes == 4 * 4 + 2);  // the table once, one byte per row
  CHECK(predicted.numbers == 2);
  CHECK(predicted.entries[0].parameter == "");
  CHECK(predicted.entries[0].key == "table");
  CHECK(predicted.entries[1].parameter == "w");
  CHECK(predicted.entries[1].dtype == DType::u8);

  Tensor(w).set_grad(Tensor::from({1.0f, -1.0f, 1.0f, -1.0f}, {2, 2}));
  optimizer.step();
  CHECK(w.to_vector<float>() == std::vector<float>{0, 2, 0, 2});
  CHECK(optimizer.state("w").norm == 3.25);
  CHECK(memory::current(memory::Category::optimizer_state) - before == predicted.bytes);

  const TemporaryFolder folder;
  save_state(optimizer, folder / "state.safetensors");
  Optimizer<SignRule> other(NamedTensors{{"w", w}});
  load_state(other, folder / "state.safetensors");
  CHECK(other.state("w").step == 1);
  CHECK(other.state("w").norm == 3.25);
  CHECK(other.state("w").flips.values<uint8_t>()[0] == 1);
  other.step();
  CHECK(w.to_vector<float>() == std::vector<float>{-1, 3, -1, 3});
}

TEST_CASE(
    "a rule without weight decay refuses a group that asks for it, and not one that does not") {
  const Tensor w = scalar(1.0);
  CHECK(error_of([&] {
          Optimizer<SignRule>({ParameterGroup{.parameters = {{"w", w}}, .weight_decay = 0.1}});
        }) == "sign: group 0 asks for a weight_decay of 0.1, which this rule does not have");
  CHECK(error_of([&] {
          Optimizer<SignRule>({ParameterGroup{.parameters = {{"w", w}}, .weight_decay = 0.0}});
        }) == "");
}

TEST_CASE("options are read from text by their names, as a command line gives them") {
  SignRule::Options options;
  OptionFields fields;
  SignRule::list_options(options, fields);
  std::optional<double> maybe;
  bool flag = false;
  fields("maybe", maybe);
  fields("flag", flag);
  const auto set = [&](std::string_view key, std::string_view text) {
    return error_of([&] {
      for (const OptionField& field : fields)
        if (field.key == key) field.from_text("sign", text);
    });
  };
  CHECK(set("lr", "5e-05") == "");
  CHECK(options.lr == 5e-5);
  CHECK(set("mode", "some") == "");
  CHECK(options.mode == "some");
  CHECK(set("rows", "7") == "");
  CHECK(options.rows == 7);
  CHECK(set("maybe", "0.5") == "");
  CHECK(maybe == 0.5);
  CHECK(set("maybe", "None") == "");
  CHECK_FALSE(maybe.has_value());
  CHECK(set("flag", "True") == "");
  CHECK(flag);
  CHECK(set("lr", "fast") == "sign: option lr is \"fast\", must be a number");
  CHECK(set("lr", "1 ") == "sign: option lr is \"1 \", must be a number");
  CHECK(set("rows", "1.5") == "sign: option rows is \"1.5\", must be an integer");
  CHECK(set("flag", "yes") == "sign: option flag is \"yes\", must be true or false");
  CHECK(set("maybe", "") == "sign: option maybe is \"\", must be a number or none");
  CHECK(options.lr == 5e-5);
}
