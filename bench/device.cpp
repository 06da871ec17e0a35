// What training costs on a device: one JSON object on standard output.
//
//   bench_device DEVICE step SEQUENCES LENGTH [ROUNDS]
//     a step of DistilBERT (base size), f32, AdamW
//   bench_device DEVICE optimizer NAME [ROUNDS]
//     the optimizer's step alone, same model
//   bench_device DEVICE attention TOKENS (equal | mixed) [ROUNDS [HEADS]]
//     our attention beside cuDNN's, bf16, heads of 64, for sequences of 128 tokens, or of 16 to 240
//   bench_device DEVICE copy
//     bytes per second of a copy on the device

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "autograd/ops.h"
#include "bench/timing.h"
#include "core/backend.h"
#include "core/cuda/graph.h"
#include "models/distilbert.h"
#include "optim/clip.h"
#include "optim/make_optimizer.h"
#include "train/parity.h"

using namespace minim;
using bench::median;
using bench::now;

namespace {

// The work that is to be timed, from one idle moment of the device to the next.
template <class Work>
double seconds_of(Device device, const Work& work) {
  backend(device).synchronize(device);
  const double start = now();
  work();
  backend(device).synchronize(device);
  return now() - start;
}

template <class Work>
double median_seconds(Device device, int64_t rounds, const Work& work) {
  for (int i = 0; i < 3; ++i)
    work();  // warm-up: memory, algorithms
  std::vector<double> all;
  for (int64_t i = 0; i < rounds; ++i)
    all.push_back(seconds_of(device, work));
  return median(all);
}

models::DistilBertForSequenceClassification base_model(Device device) {
  models::DistilBertConfig config = models::DistilBertConfig::preset("base");
  config.vocab_size = 28996;
  return models::DistilBertForSequenceClassification(config, {.device = device});
}

void bench_step(Device device, int64_t sequences, int64_t length, int64_t rounds) {
  const auto model = base_model(device);
  const auto optimizer = optim::make_optimizer("adamw", optim::decay_groups(model, 0.01), {});
  const PackedBatch on_host =
      train::random_batch(model.config, std::vector<int64_t>(size_t(sequences), length));
  const NamedTensors parameters = model.parameters();
  double loss = 0;
  const auto step = [&] {
    const PackedBatch batch = on_host.to(device);
    const Tensor value = model.loss(model.forward(batch), batch.labels);
    value.backward();
    optimizer->step({.gradient_factor = optim::clip_on_device(parameters, 1.0).coefficient});
    optimizer->zero_grad();
    loss = value.item();
  };
  const double seconds = median_seconds(device, rounds, step);
  const int64_t before = memory::system_allocations(device);
  step();
  const int64_t allocations = memory::system_allocations(device) - before;
  const double forward = median_seconds(device, rounds, [&] {
    const PackedBatch batch = on_host.to(device);
    const NoGrad no_grad;
    model.forward(batch);
  });
  const auto tokens = double(sequences * length);
  fmt::print(R"({{"what": "step", "device": "{}", "dtype": "f32", "sequences": {}, "length": {}, )"
             R"("step_ms": {:.4f}, "forward_ms": {:.4f}, "tokens_per_second": {:.0f}, )"
             R"("peak_bytes": {}, "allocations_per_step": {}, "loss": {:.6f}}})"
             "\n",
             device, sequences, length, 1e3 * seconds, 1e3 * forward, tokens / seconds,
             memory::peak(device), allocations, loss);
}

// Bytes per second, read and written, of a copy that no cache holds.
double copy_rate(Device device) {
  const int64_t elements = device.is_cpu() ? int64_t(1) << 26 : int64_t(1) << 29;
  const Tensor from = Tensor::zeros({elements}, DType::f32, device);
  const Tensor to = Tensor::empty_like(from);
  return double(2 * from.bytes()) / median_seconds(device, 5, [&] { copy(to, from); });
}

// Bytes per parameter that a step has to read and write: weight, gradient and state.
double bytes_per_parameter(const optim::AnyOptimizer& optimizer, int64_t parameters) {
  return 4 + 4 + 4 + 2 * double(optimizer.state_size().bytes) / double(parameters);
}

void bench_optimizer(Device device, const std::string& name, int64_t rounds) {
  const auto model = base_model(device);
  const auto optimizer = optim::make_optimizer(name, optim::decay_groups(model, 0.01), {});
  for (const NamedTensor& parameter : model.parameters())
    Tensor(parameter.tensor)
        .set_grad(Tensor::full(parameter.tensor.shape(), 1e-3, DType::f32, device));
  const double seconds = median_seconds(device, rounds, [&] { optimizer->step(1e-5); });
  const int64_t parameters = model.parameter_count();
  const double rate = bytes_per_parameter(*optimizer, parameters) * double(parameters) / seconds;
  fmt::print(R"({{"what": "optimizer", "device": "{}", "name": "{}", "parameters": {}, )"
             R"("state_bytes": {}, "step_ms": {:.4f}, "bytes_per_second": {:.4g}, )"
             R"("share_of_copy": {:.3f}}})"
             "\n",
             device, name, parameters, optimizer->state_size().bytes, 1e3 * seconds, rate,
             rate / copy_rate(device));
}

// Rows of sequences that attend to themselves; `mixed` lengths are spread over 16 to 240.
AttentionRows rows_of(int64_t tokens, bool mixed, double& squares) {
  std::vector<int32_t> offsets = {0};
  for (int64_t i = 0; offsets.back() < tokens; ++i) {
    const int64_t length = std::min(mixed ? 16 + i * 97 % 225 : 128, tokens - offsets.back());
    offsets.push_back(int32_t(offsets.back() + length));
    squares += double(length) * double(length);
  }
  const auto sequences = int64_t(offsets.size()) - 1;
  const std::vector<int32_t> begin(offsets.begin(), offsets.end() - 1);
  const std::vector<int32_t> end(offsets.begin() + 1, offsets.end());
  return {Tensor::from(offsets, {sequences + 1}), Tensor::from(begin, {sequences}),
          Tensor::from(end, {sequences})};
}

// Largest difference over the largest magnitude.
double relative_difference(const Tensor& a, const Tensor& b) {
  const std::vector<float> x = a.to_vector<float>(), y = b.to_vector<float>();
  float most = 0, largest = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    most = std::max(most, std::abs(x[i] - y[i]));
    largest = std::max(largest, std::abs(y[i]));
  }
  return double(most) / double(largest);
}

// Forward and backward by one of the two, which core/cuda/cudnn_attention.h is told by name: each
// as a graph, so that the host's share of the work is not measured.
class MeasuredAttention {
 public:
  MeasuredAttention(const char* name, const Tensors& qkv, const Tensor& dy,
                    const AttentionRows& rows, int64_t heads)
      : device_(dy.device()), segment_(device_) {
    setenv("MINIM_ATTENTION", name, 1);
    Generator generator;
    for (const Tensor& x : qkv) {
      qkv_.push_back(x.detach());
      qkv_.back().set_requires_grad();
    }
    const auto compute = [&] {
      return attention(qkv_[0], qkv_[1], qkv_[2], rows, heads, 0.0f, generator);
    };
    try {
      y = compute();  // plans are made here
      y.backward(dy);
      dq = qkv_[0].grad();
      for (const Tensor& x : qkv_)
        Tensor(x).set_grad(Tensor());
      const memory::Segment::Use use(segment_);
      forward_ = std::make_unique<cuda::Graph>(device_, [&] { recorded_ = compute(); });
      backward_ = std::make_unique<cuda::Graph>(device_, [&] { recorded_.backward(dy); });
    } catch (const Error& failure) {
      error = failure.what();
      std::ranges::replace(error, '"', '\'');
    }
  }

  void run(int64_t launches) {
    const auto seconds_of_one = [&](const cuda::Graph& graph) {
      return seconds_of(device_,
                        [&] {
                          for (int64_t i = 0; i < launches; ++i)
                            graph.launch();
                        }) /
             double(launches);
    };
    forward.push_back(seconds_of_one(*forward_));
    backward.push_back(seconds_of_one(*backward_));
  }

  std::vector<double> forward, backward;  // seconds
  Tensor y, dq;
  std::string error;  // or empty

 private:
  Device device_;
  memory::Segment segment_;
  Tensors qkv_;
  Tensor recorded_;
  std::unique_ptr<cuda::Graph> forward_, backward_;
};

void bench_attention(Device device, int64_t tokens, bool mixed, int64_t rounds, int64_t heads) {
  double squares = 0;
  const AttentionRows here = rows_of(tokens, mixed, squares);
  const AttentionRows rows = {here.query_offsets.to(device), here.key_begin.to(device),
                              here.key_end.to(device)};
  const int64_t dim = 64 * heads;
  const auto noise = [&](uint64_t seed) {
    const Tensor x = Tensor::empty({tokens, dim}, DType::f32, device);
    fill_normal(x, 0.0, 1.0, seed, "bench");
    return convert(x, DType::bf16);
  };
  const Tensors qkv = {noise(1), noise(2), noise(3)};
  const Tensor dy = noise(4);
  MeasuredAttention own("own", qkv, dy, rows, heads), cudnn("cudnn", qkv, dy, rows, heads);
  check(own.error.empty(), "{}", own.error);
  const bool both = cudnn.error.empty();
  const int64_t launches = std::min<int64_t>(rounds, 10);
  for (int64_t round = 0; round < rounds; ++round) {
    own.run(launches);
    if (both) cudnn.run(launches);
  }
  // Two products in the forward, five in the backward.
  const double product = 2.0 * squares * double(dim);
  const auto figures = [&](const MeasuredAttention& of) {
    const double there = median(of.forward), back = median(of.backward);
    return fmt::format(R"({{"forward_ms": {:.4f}, "backward_ms": {:.4f}, )"
                       R"("forward_tflops": {:.2f}, "backward_tflops": {:.2f}}})",
                       1e3 * there, 1e3 * back, 2 * product / there / 1e12,
                       5 * product / back / 1e12);
  };
  const std::string theirs =
      cudnn.error.empty() ? figures(cudnn) : fmt::format(R"({{"error": "{}"}})", cudnn.error);
  fmt::print(
      R"({{"what": "attention", "device": "{}", "dtype": "bf16", "tokens": {}, )"
      R"("sequences": {}, "lengths": "{}", "heads": {}, "own": {}, "cudnn": {}, )"
      R"("difference": {}}})"
      "\n",
      device, tokens, here.key_begin.numel(), mixed ? "mixed" : "equal", heads, figures(own),
      theirs,
      both ? fmt::format(R"({{"y": {:.3g}, "dq": {:.3g}}})", relative_difference(own.y, cudnn.y),
                         relative_difference(own.dq, cudnn.dq))
           : "null");
}

}  // namespace

int main(int count, char** values) {
  const std::vector<std::string> arguments(values + 1, values + count);
  const auto number = [&](size_t i, int64_t otherwise) {
    return i < arguments.size() ? std::strtoll(arguments[i].c_str(), nullptr, 10) : otherwise;
  };
  try {
    const std::string what = arguments.size() > 1 ? arguments[1] : "";
    const bool right = what == "copy" || (what == "step" && arguments.size() > 3) ||
                       (what == "optimizer" && arguments.size() > 2) ||
                       (what == "attention" && arguments.size() > 3 &&
                        (arguments[3] == "equal" || arguments[3] == "mixed"));
    check(right,
          "usage: bench_device DEVICE (step SEQUENCES LENGTH | optimizer NAME | attention TOKENS "
          "(equal | mixed) | copy)");
    const Device device = Device::parse(arguments[0]);
    if (what == "step")
      bench_step(device, number(2, 16), number(3, 128), number(4, 20));
    else if (what == "optimizer")
      bench_optimizer(device, arguments[2], number(3, 20));
    else if (what == "attention")
      bench_attention(device, number(2, 2048), arguments[3] == "mixed", number(4, 20),
                      number(5, 12));
    else
      fmt::print(R"({{"what": "copy", "device": "{}", "bytes_per_second": {:.4g}}})"
                 "\n",
                 device, copy_rate(device));
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
