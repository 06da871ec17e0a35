#include <algorithm>
#include <chrono>
#include <vector>

#include <fmt/core.h>

#include "core/parallel.h"
#include "optim/adamw.h"
#include "optim/clip.h"

// Time of one optimizer step over the parameters of distilbert-base-cased with 2 labels, as a ratio
// to the time in which the same bytes go through memory without arithmetic.
using namespace minim;

namespace {

constexpr int repeats = 15;

// Names do not matter here; the 104 shapes do.
NamedTensors distilbert() {
  NamedTensors parameters;
  const memory::Scope scope(memory::Category::weights);
  const auto add = [&](const Shape& shape) {
    Tensor p = Tensor::full(shape, 0.02);
    p.set_requires_grad();
    parameters.push_back({fmt::format("p{}", parameters.size()), p});
  };
  const auto linear = [&](int64_t out, int64_t in) {
    add({out, in});
    add({out});
  };
  const auto layer_norm = [&] {
    add({768});
    add({768});
  };
  add({28996, 768});
  add({512, 768});
  layer_norm();
  for (int layer = 0; layer < 6; ++layer) {
    for (int projection = 0; projection < 4; ++projection)
      linear(768, 768);
    layer_norm();
    linear(3072, 768);
    linear(768, 3072);
    layer_norm();
  }
  linear(768, 768);
  linear(2, 768);
  return parameters;
}

template <class Body>
double time_ms(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
  return time.count();
}

double median(std::vector<double> times) {
  std::ranges::nth_element(times, times.begin() + repeats / 2);
  return times[repeats / 2];
}

}  // namespace

int main() {
  const NamedTensors parameters = distilbert();
  int64_t elements = 0;
  {
    const memory::Scope scope(memory::Category::gradients);
    for (const NamedTensor& p : parameters) {
      Tensor(p.tensor).set_grad(Tensor::full(p.tensor.shape(), 1e-3));
      elements += p.tensor.numel();
    }
  }
  optim::AdamW optimizer(parameters);
  optimizer.step();
  const int64_t state = memory::current(memory::Category::optimizer_state);
  const int64_t predicted = optim::state_size(optimizer).bytes;

  // AdamW reads p, g, m and v and writes p, m and v: 28 bytes per weight. So does this loop.
  const auto copy_all = [&] {
    for (const auto& [name, p, own] : optimizer.items()) {
      float *a = p.data<float>(), *b = own->exp_avg.data<float>();
      float* c = own->exp_avg_sq.data<float>();
      const float* g = p.grad().data<float>();
      parallel_chunks(p.numel(), 32768, [=](int64_t begin, int64_t end) {
#pragma GCC ivdep
        for (int64_t i = begin; i < end; ++i) {
          const float mean = 0.25f * (a[i] + g[i] + b[i] + c[i]);
          a[i] = mean;
          b[i] = mean;
          c[i] = mean;
        }
      });
    }
  };
  // In turns, so that whatever else the machine does slows both.
  std::vector<double> steps, copies, norms;
  for (int i = 0; i < repeats; ++i) {
    steps.push_back(time_ms([&] { optimizer.step(); }));
    copies.push_back(time_ms(copy_all));
    norms.push_back(time_ms([&] { optim::gradient_norm(parameters); }));
  }
  const double step = median(steps), copy = median(copies), norm = median(norms);
  fmt::print("{} parameters in {} tensors, {} threads, medians of {}\n", elements,
             parameters.size(), thread_count(), repeats);
  fmt::print("adamw: {:.1f} ms a step, {:.1f} GB/s, state {} bytes (predicted {})\n", step,
             28e-6 * double(elements) / step, state, predicted);
  fmt::print("memory alone: {:.1f} ms; ratio {:.2f}\n", copy, step / copy);
  fmt::print("gradient norm: {:.1f} ms, {:.1f} GB/s\n", norm, 4e-6 * double(elements) / norm);
  return state == predicted ? 0 : 1;
}
