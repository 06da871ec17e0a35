// Time of one optimizer step over the parameters of distilbert-base-cased with 2 labels, with the
// scale of clipping folded in: of each rule, as a ratio to AdamW's and to the time in which AdamW's
// bytes go through memory without arithmetic. Where MINIM_PYTHON names a Python that has them, the
// steps of torch, transformers and bitsandbytes on the same shapes run in between, round by round.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "bench/timing.h"
#include "core/parallel.h"
#include "core/random.h"
#include "optim/adamw.h"
#include "optim/clip.h"
#include "optim/make_optimizer.h"

using namespace minim;
using bench::median;
using bench::now;

namespace {

constexpr int rounds = 7, steps_per_round = 3;

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

// The median of a few runs, which what else the machine does in between disturbs less than their
// mean.
template <class Body>
double time_ms(const Body& body) {
  std::vector<double> times;
  for (int i = 0; i < steps_per_round; ++i) {
    const double start = now();
    body();
    times.push_back(1e3 * (now() - start));
  }
  return median(std::move(times));
}

// One round of the peers, added to their times by name.
void peer_round(const std::string& python, std::map<std::string, std::vector<double>>& times) {
  const std::string command = fmt::format("{} {}/bench/optimizer_step_peer.py {} 2>/dev/null",
                                          python, MINIM_SOURCE_ROOT, thread_count());
  std::FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return;
  std::array<char, 64> name;
  double time = 0;
  while (std::fscanf(pipe, "%63s %lf", name.data(), &time) == 2)
    times[name.data()].push_back(time);
  pclose(pipe);
}

// AdamW reads p, g, m and v and writes p, m and v: 28 bytes per weight. So does this loop.
void pass_through_memory(const optim::AdamW& optimizer) {
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
}

struct Rule {
  std::string name, options, peer;
  std::unique_ptr<optim::AnyOptimizer> optimizer;
  std::vector<double> times;
};

}  // namespace

int main() {
  const NamedTensors parameters = distilbert();
  int64_t elements = 0;
  {
    const memory::Scope scope(memory::Category::gradients);
    for (const NamedTensor& p : parameters) {
      const Tensor gradient = randn(p.tensor.shape(), uint64_t(elements));
      for (float& value : gradient.values<float>())
        value *= 1e-3f;
      Tensor(p.tensor).set_grad(gradient);
      elements += p.tensor.numel();
    }
  }
  std::vector<Rule> rules;
  rules.push_back({"adamw", "", "torch.optim.AdamW(fused)", {}, {}});
  rules.push_back({"sgd", "momentum=0.9", "torch.optim.SGD(fused)", {}, {}});
  rules.push_back({"adafactor", "", "transformers.Adafactor", {}, {}});
  rules.push_back({"adam8bit", "", "bitsandbytes.Adam8bit", {}, {}});
  bool as_predicted = true;
  for (Rule& rule : rules) {
    std::vector<optim::ParameterGroup> group(1);
    group[0].parameters = parameters;
    rule.optimizer =
        optim::make_optimizer(rule.name, std::move(group), {.optim_args = rule.options});
    const int64_t before = memory::current(memory::Category::optimizer_state);
    rule.optimizer->step();
    const int64_t state = memory::current(memory::Category::optimizer_state) - before;
    as_predicted = as_predicted && state == rule.optimizer->state_size().bytes;
  }
  optim::AdamW bare(parameters);
  bare.step();

  // In turns, so that whatever else the machine does slows all of them.
  const char* python = std::getenv("MINIM_PYTHON");
  std::vector<double> memory_alone, norms;
  std::map<std::string, std::vector<double>> peers;
  for (int round = 0; round < rounds; ++round) {
    for (Rule& rule : rules)
      rule.times.push_back(time_ms([&] { rule.optimizer->step(5e-5, 0.5); }));
    memory_alone.push_back(time_ms([&] { pass_through_memory(bare); }));
    norms.push_back(time_ms([&] { optim::gradient_norm(parameters); }));
    if (python != nullptr) peer_round(python, peers);
  }

  const double adamw = median(rules[0].times), bound = median(memory_alone);
  fmt::print("{} parameters in {} tensors, {} threads, medians of {} rounds of {} steps\n",
             elements, parameters.size(), thread_count(), rounds, steps_per_round);
  fmt::print("{:14} {:>8} {:>8} {:>10} {:>12}   {}\n", "", "ms", "/ adamw", "state MiB",
             "peer's ms", "peer's time / ours");
  for (const Rule& rule : rules) {
    const double time = median(rule.times);
    fmt::print("{:14} {:8.1f} {:8.2f} {:10.2f}", rule.name, time, time / adamw,
               double(rule.optimizer->state_size().bytes) / 0x1p20);
    if (const auto peer = peers.find(rule.name); peer != peers.end())
      fmt::print(" {:12.1f}   {:.2f} x {}", median(peer->second), median(peer->second) / time,
                 rule.peer);
    fmt::print("\n");
  }
  fmt::print("{:14} {:8.1f} {:8.2f}   {:.1f} GB/s: AdamW's bytes without its arithmetic\n",
             "memory alone", bound, bound / adamw, 28e-6 * double(elements) / bound);
  fmt::print("{:14} {:8.1f} {:8.2f}\n", "gradient norm", median(norms), median(norms) / adamw);
  if (peers.empty())
    fmt::print("no peers to compare with: set MINIM_PYTHON to a Python that has torch\n");
  if (!as_predicted) fmt::print("a state is not of the size that was predicted\n");
  return as_predicted ? 0 : 1;
}
