// What training costs on a device: one JSON object on standard output.
//
//   bench_device DEVICE step SEQUENCES LENGTH [ROUNDS]     a step of DistilBERT (base size), f32,
//   AdamW bench_device DEVICE optimizer NAME [ROUNDS]            the optimizer's step alone, same
//   model bench_device DEVICE copy                               bytes per second of a copy on the
//   device

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/backend.h"
#include "models/distilbert.h"
#include "optim/clip.h"
#include "optim/make_optimizer.h"
#include "train/parity.h"

using namespace minim;

namespace {

// The work that is to be timed, from one idle moment of the device to the next.
template <class Work>
double seconds_of(Device device, const Work& work) {
  backend(device).synchronize(device);
  const auto start = std::chrono::steady_clock::now();
  work();
  backend(device).synchronize(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class Work>
double median_seconds(Device device, int64_t rounds, const Work& work) {
  for (int i = 0; i < 3; ++i)
    work();  // warm-up: memory, algorithms
  std::vector<double> all;
  for (int64_t i = 0; i < rounds; ++i)
    all.push_back(seconds_of(device, work));
  std::ranges::sort(all);
  return all[all.size() / 2];
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

}  // namespace

int main(int count, char** values) {
  const std::vector<std::string> arguments(values + 1, values + count);
  const auto number = [&](size_t i, int64_t otherwise) {
    return i < arguments.size() ? std::strtoll(arguments[i].c_str(), nullptr, 10) : otherwise;
  };
  try {
    const std::string what = arguments.size() > 1 ? arguments[1] : "";
    const bool right = what == "copy" || (what == "step" && arguments.size() > 3) ||
                       (what == "optimizer" && arguments.size() > 2);
    check(right, "usage: bench_device DEVICE (step SEQUENCES LENGTH | optimizer NAME | copy)");
    const Device device = Device::parse(arguments[0]);
    if (what == "step")
      bench_step(device, number(2, 16), number(3, 128), number(4, 20));
    else if (what == "optimizer")
      bench_optimizer(device, arguments[2], number(3, 20));
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
