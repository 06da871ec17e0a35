// One training step of DistilBERT (base size), 16 sequences of 128 tokens, in f32: time by part,
// the ratio to the matrix products alone, and peak memory by category. Where MINIM_PYTHON names a
// Python with transformers, its step runs in between, round by round.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/timing.h"
#include "core/gemm.h"
#include "core/parallel.h"
#include "models/distilbert.h"
#include "optim/adamw.h"
#include "optim/clip.h"
#include "text/packing.h"

using namespace minim;
using bench::median;
using bench::now;

namespace {

constexpr int64_t sequences = 16, length = 128, rounds = 5;

PackedBatch make_batch(int64_t vocabulary) {
  std::vector<text::TokenSequence> all(sequences);
  std::vector<int64_t> labels;
  for (int64_t s = 0; s < sequences; ++s) {
    for (int64_t t = 0; t < length; ++t)
      all[size_t(s)].input_ids.push_back(int32_t((s * 7919 + t * 104729) % vocabulary));
    labels.push_back(s % 2);
  }
  return text::pack(all, Tensor::from(labels, {sequences}));
}

// Seconds of the products of one step: per layer four of [T, D] x [D, D] and two of [T, D] x [D, 4
// D], each forward, for the input's gradient and for the weight's.
double gemm_seconds(int64_t layers, int64_t dim) {
  const int64_t tokens = sequences * length;
  const Tensor a = randn({tokens, 4 * dim}, 1), b = randn({4 * dim, dim}, 2);
  const Tensor c = Tensor::empty({4 * dim, std::max(4 * dim, tokens)});
  const auto product = [&](int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
    gemm<float>(m, n, k, 1, {a.data<float>(), ta ? m : k, ta}, {b.data<float>(), tb ? k : n, tb}, 0,
                c.data<float>(), n);
  };
  const auto linear = [&](int64_t out, int64_t in) {
    product(tokens, out, in, false, true);
    product(tokens, in, out, false, false);
    product(out, in, tokens, true, false);
  };
  const double start = now();
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (int i = 0; i < 4; ++i)
      linear(dim, dim);
    linear(4 * dim, dim);
    linear(dim, 4 * dim);
  }
  return now() - start;
}

// Seconds of one step in PyTorch, or 0 where Python has no torch.
double peer_seconds(const std::string& python) {
  const std::string command = fmt::format("{} {}/bench/step_peer.py {} {} {} 2>/dev/null", python,
                                          MINIM_SOURCE_ROOT, sequences, length, thread_count());
  std::FILE* pipe = popen(command.c_str(), "r");
  double seconds = 0;
  if (pipe == nullptr || std::fscanf(pipe, "%lf", &seconds) != 1) seconds = 0;
  if (pipe != nullptr) pclose(pipe);
  return seconds;
}

}  // namespace

int main() {
  const char* python = std::getenv("MINIM_PYTHON");
  models::DistilBertConfig config = models::DistilBertConfig::preset("base");
  const models::DistilBertForSequenceClassification model(config);
  optim::AdamW optimizer(optim::decay_groups(model, 0.01), {.lr = 5e-5});
  const PackedBatch batch = make_batch(config.vocab_size);
  const NamedTensors parameters = model.parameters();

  std::vector<double> forward, backward, clip, update, total, products, peer;
  for (int64_t round = 0; round < rounds + 2; ++round) {
    const double t0 = now();
    const Tensor loss = model.loss(model.forward(batch), batch.labels);
    const double t1 = now();
    loss.backward();
    const double t2 = now();
    const double scale = optim::clip_coefficient(optim::gradient_norm(parameters), 1.0);
    const double t3 = now();
    optimizer.step(5e-5, scale);
    optimizer.zero_grad();
    const double t4 = now();
    const double gemm = gemm_seconds(config.n_layers, config.dim);
    const double torch = python != nullptr ? peer_seconds(python) : 0;
    if (round < 2) continue;  // warm-up
    forward.push_back(t1 - t0);
    backward.push_back(t2 - t1);
    clip.push_back(t3 - t2);
    update.push_back(t4 - t3);
    total.push_back(t4 - t0);
    products.push_back(gemm);
    peer.push_back(torch);
  }

  fmt::print("DistilBERT base, {} x {} tokens, f32, {} threads, medians of {}\n", sequences, length,
             thread_count(), rounds);
  const std::pair<const char*, double> parts[] = {{"forward", median(forward)},
                                                  {"backward", median(backward)},
                                                  {"gradient norm", median(clip)},
                                                  {"AdamW", median(update)},
                                                  {"step", median(total)}};
  for (const auto& [name, seconds] : parts)
    fmt::print("  {:14} {:8.1f} ms  {:5.1f} %\n", name, 1e3 * seconds,
               100 * seconds / median(total));
  // The last block computes one row per sequence after its keys and values, so the step does less
  // than all products.
  fmt::print("  step / all matrix products alone ({:.1f} ms): {:.2f}\n", 1e3 * median(products),
             median(total) / median(products));
  if (median(peer) > 0)
    fmt::print("  PyTorch's step {:.1f} ms / ours: {:.2f}\n", 1e3 * median(peer),
               median(peer) / median(total));
  else
    fmt::print(
        "  no PyTorch to compare with: set MINIM_PYTHON to a Python that has transformers\n");
  fmt::print("peak memory:");
  for (size_t c = 0; c < memory::categories; ++c)
    fmt::print("  {} {:.1f} MiB", memory::name_of(memory::Category(c)),
               double(memory::peak(memory::Category(c))) / 0x1p20);
  fmt::print("  all {:.1f} MiB\n", double(memory::peak()) / 0x1p20);
  return 0;
}
