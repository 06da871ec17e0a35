#include <algorithm>
#include <numeric>

#include <doctest/doctest.h>

#include "autograd/ops.h"
#include "core/parallel.h"
#include "optim/make_optimizer.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

// What holds for every rule there is, whatever it does with a gradient.

namespace {

// Each rule by its name; 8 bits also for small tensors, and momentum where it is an option.
std::unique_ptr<AnyOptimizer> make(std::string_view name, std::vector<ParameterGroup> groups) {
  OptimizerArguments arguments{.learning_rate = 0.05};
  if (name.ends_with("8bit")) arguments.optim_args = "min_8bit_size=1";
  if (name == "sgd") arguments.optim_args = "momentum=0.9";
  return make_optimizer(name, std::move(groups), arguments);
}

std::unique_ptr<AnyOptimizer> make(std::string_view name, NamedTensors parameters) {
  std::vector<ParameterGroup> groups(1);
  groups[0].parameters = std::move(parameters);
  return make(name, std::move(groups));
}

// Parameters of many shapes, always the same.
NamedTensors parameters() {
  NamedTensors all;
  for (const Shape& shape :
       {Shape{40, 33}, Shape{700}, Shape{3, 5, 7}, Shape{}, Shape{1, 9}, Shape{257}})
    all.push_back({fmt::format("p{}", all.size()),
                   parameter(noise(shape.numel(), int(all.size()) + 2), shape)});
  return all;
}

void give_gradients(const NamedTensors& all, int step) {
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor& p = all[i].tensor;
    Tensor(p).set_grad(Tensor::from(noise(p.numel(), 10 * step + int(i) + 3), p.shape()));
  }
}

// The parameters after three steps, in the order of parameters().
std::vector<std::vector<float>> trained(AnyOptimizer& optimizer, const NamedTensors& all) {
  for (int step = 0; step < 3; ++step) {
    give_gradients(all, step);
    optimizer.step();
  }
  std::vector<std::vector<float>> values;
  for (const NamedTensor& p : all)
    values.push_back(p.tensor.to_vector<float>());
  return values;
}

}  // namespace

TEST_CASE("every rule: neither the order of parameters nor their cut into groups matters") {
  for (const std::string_view name : optimizer_names()) {
    CAPTURE(name);
    const NamedTensors all = parameters();
    const auto expected = trained(*make(name, all), all);

    const NamedTensors other = parameters();
    NamedTensors reversed(other.rbegin(), other.rend());
    CHECK(trained(*make(name, reversed), other) == expected);

    const NamedTensors cut = parameters();
    std::vector<ParameterGroup> groups(3);
    for (size_t i = 0; i < cut.size(); ++i)
      groups[i % 3].parameters.push_back(cut[i]);
    CHECK(trained(*make(name, groups), cut) == expected);
  }
}

TEST_CASE("every rule: the number of threads changes no bit") {
  const int threads = thread_count();
  for (const std::string_view name : optimizer_names()) {
    CAPTURE(name);
    const auto run = [&](int count) {
      set_thread_count(count);
      const NamedTensors all = {{"w", parameter(noise(330 * 301, 2), {330, 301})}};
      return trained(*make(name, all), all);
    };
    CHECK(run(1) == run(3));
  }
  set_thread_count(threads);
}

TEST_CASE(
    "every rule: rows of an embedding that no token asked for are trained as dense ones are") {
  // A look-up is a product with rows of the unit matrix, whose gradient is written out: zeros for
  // the rows that were not asked for. Momentum and decay move those all the same.
  const std::vector<int64_t> tokens[] = {{1, 4, 1}, {4, 0}, {2}};
  for (const std::string_view name : optimizer_names()) {
    CAPTURE(name);
    const auto run = [&](bool look_up) {
      const Tensor table = parameter(noise(6 * 5, 2), {6, 5});
      const auto optimizer = make(name, NamedTensors{{"embeddings.weight", table}});
      std::vector<std::vector<float>> after;
      for (const std::vector<int64_t>& ids : tokens) {
        const auto rows = int64_t(ids.size());
        Tensor units = Tensor::zeros({rows, 6});
        for (int64_t i = 0; i < rows; ++i)
          units.values<float>()[size_t(6 * i + ids[size_t(i)])] = 1.0f;
        const Tensor x =
            look_up ? embedding(table, Tensor::from(ids, {rows})) : matmul(units, table);
        sum(x * Tensor::from(noise(5, 7), {5})).backward();
        optimizer->step();
        optimizer->zero_grad();
        after.push_back(table.to_vector<float>());
      }
      return after;
    };
    const auto looked_up = run(true);
    CHECK(looked_up == run(false));
    // Row 3 never had a gradient; row 1 had one in the first step alone.
    const auto row_moved = [&](size_t row, size_t step) {
      return !std::equal(looked_up[step].begin() + int64_t(5 * row),
                         looked_up[step].begin() + int64_t(5 * row + 5),
                         looked_up[step - 1].begin() + int64_t(5 * row));
    };
    const bool remembers = !name.starts_with("adafactor");  // has no first moment by itself
    CHECK(row_moved(1, 1) == remembers);
    CHECK_FALSE(row_moved(3, 1));
    CHECK_FALSE(row_moved(3, 2));
  }
}

TEST_CASE("every rule: tensors without elements cost nothing and do no harm; scalars are trained") {
  for (const std::string_view name : optimizer_names()) {
    CAPTURE(name);
    NamedTensors all = {{"scalar", parameter(std::vector<float>{1.0f}, {})}};
    for (const Shape& shape : {Shape{0}, Shape{0, 3}, Shape{3, 0}, Shape{2, 0, 3}})
      all.push_back({"empty " + shape.to_string(), parameter(std::vector<float>{}, shape)});
    const int64_t before = memory::current(memory::Category::optimizer_state);
    const auto optimizer = make(name, all);
    const StateSize predicted = optimizer->state_size();
    for (int step = 0; step < 2; ++step) {
      for (const NamedTensor& p : all)
        set_gradient(p.tensor, 0.5);
      optimizer->set_on_non_finite(OnNonFinite::refuse);
      CHECK(optimizer->step());
    }
    CHECK(memory::current(memory::Category::optimizer_state) - before == predicted.bytes);
    CHECK(all[0].tensor.item() < 1.0);
    CHECK(all[0].tensor.item() > 0.5);

    // Their state travels with the others'.
    const auto other = make(name, all);
    other->load_state_dict(optimizer->state_dict(), optimizer->metadata());
    CHECK(other->state_dict().size() == optimizer->state_dict().size());
    CHECK(other->step());
  }
}

TEST_CASE("every rule: a step counter goes on past 2^31, and a count that is none is refused") {
  for (const std::string_view name : optimizer_names()) {
    CAPTURE(name);
    const Tensor p = parameter(noise(300, 2), {300});
    const auto optimizer = make(name, NamedTensors{{"p", p}});
    const auto step = [&] {
      Tensor(p).set_grad(Tensor::from(noise(300, 3), {300}));
      optimizer->step();
    };
    step();
    const auto load_step = [&](int64_t count) {
      NamedTensors state;
      for (const NamedTensor& entry : optimizer->state_dict())
        state.push_back({entry.name, entry.name == "p.step" ? Tensor::from({count}, {})
                                                            : entry.tensor.clone()});
      optimizer->load_state_dict(state, optimizer->metadata());
    };
    load_step((int64_t(1) << 31) - 1);
    for (int64_t i = 0; i < 3; ++i) {
      const auto before = p.to_vector<float>();
      step();
      const auto after = p.to_vector<float>();
      double longest = 0;
      for (size_t k = 0; k < 300; ++k)
        longest = std::max(longest, std::abs(double(after[k]) - double(before[k])));
      CHECK(longest > 0);
      CHECK(longest < 1);
    }
    for (const NamedTensor& entry : optimizer->state_dict())
      if (entry.name == "p.step") CHECK(entry.tensor.item() == double((int64_t(1) << 31) + 2));
    CHECK(error_of([&] { load_step((int64_t(1) << 53) + 1); }) ==
          fmt::format("{}: the state's p.step is 9007199254740993, must be at most 2^53", name));
  }
}

TEST_CASE("every rule: finds the bottom of a bowl whose sides are unequally steep") {
  // f(p) = sum c (p - target)^2 / 2 with c from 1 to 10, at a rate that falls to 0. p starts
  // at 1, as torch's Adafactor takes steps relative to its size.
  const int64_t n = 64;
  const std::vector<float> target = noise(n, 4);
  for (const std::string_view name : optimizer_names()) {
    CAPTURE(name);
    const Tensor p = parameter(std::vector<float>(size_t(n), 1.0f), {n});
    std::vector<ParameterGroup> groups(1);
    groups[0].parameters = {{"p", p}};
    const auto optimizer = make_optimizer(name, groups, {.learning_rate = 0.05});
    for (int step = 0; step < 400; ++step) {
      std::vector<float> gradient(static_cast<size_t>(n));
      for (size_t i = 0; i < size_t(n); ++i)
        gradient[i] = float(1 + i % 10) * (p.values<float>()[i] - target[i]);
      Tensor(p).set_grad(Tensor::from(gradient, {n}));
      optimizer->step(0.05 * (1.0 - step / 400.0));
    }
    double worst = 0;
    for (size_t i = 0; i < size_t(n); ++i)
      worst = std::max(worst, std::abs(double(p.values<float>()[i]) - double(target[i])));
    // SGD is the slowest: the flat side shrinks by the product of 1 - lr, about exp(-10) = 5e-5.
    // The others end with steps of the last rates, 1e-4 and less; AdamW's decay of 0.01 * p moves
    // the bottom by nothing that a step does not undo.
    CHECK(worst < 5e-3);
  }
}
