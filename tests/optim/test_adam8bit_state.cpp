#include <doctest/doctest.h>

#include "core/parallel.h"
#include "optim/adam8bit.h"
#include "optim/make_optimizer.h"
#include "optim/state_file.h"
#include "tests/optim/accounting.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;
using namespace minim::test;

// What 8-bit Adam keeps, and that what it keeps is all it needs.

namespace {

double mib(int64_t bytes) {
  return double(bytes) / 1048576.0;
}

NamedTensors three_parameters(DType dtype = DType::f32) {
  NamedTensors parameters = {{"w", Tensor::from(noise(70 * 80, 2), {70, 80})},
                             {"embeddings.weight", Tensor::from(noise(5000, 5), {50, 100})},
                             {"b", Tensor::from(noise(80, 3), {80})}};
  for (NamedTensor& p : parameters) {
    p.tensor = convert(p.tensor, dtype).clone();
    p.tensor.set_requires_grad();
  }
  return parameters;
}

std::vector<AdamW8bitRule::Options> many_options() {
  return {{},
          {.block_size = 64},
          {.block_size = 4096, .min_8bit_size = 1},
          {.min_8bit_size = 0, .keep_f32 = "embeddings"},
          {.code_map = "linear"},
          {.code_map = "fp8_e4m3"},
          {.code_map = "fp8_e5m2"},
          {.behaviour = "bitsandbytes"}};
}

}  // namespace

TEST_CASE("adam8bit state: a byte per weight and moment, and two scales per block") {
  const ParameterSpec w{"w", {100, 100}, DType::f32};
  const StateSize size = state_size<Adam8bitRule>({&w, 1});
  // 40 blocks: 39 of 256 weights, and one of 16. Two tables of 256 values are shared.
  CHECK(size.bytes == 2 * 10000 + 2 * 4 * 40 + 2 * 4 * 256);
  CHECK(size.entries[0].parameter.empty());
  CHECK(size.entries[2].key == "exp_avg");
  CHECK(size.entries[2].dtype == DType::u8);
  CHECK(size.entries[3].key == "exp_avg_absmax");
  CHECK(size.entries[3].shape == Shape{40});
}

TEST_CASE(
    "adam8bit state: DistilBERT keeps 127.80 MiB, as bitsandbytes does, a quarter of AdamW's") {
  const auto parameters = distilbert();
  const int64_t bytes = state_size<Adam8bitRule>(parameters).bytes;
  // bitsandbytes' step counters are counted there with 4 bytes; ours lie outside the tensors.
  CHECK(bytes + 4 * 104 == measured("bitsandbytes Adam8bit")["bytes_with_tables"]);
  CHECK(fmt::format("{:.2f}", mib(bytes)) == "127.80");
  CHECK(state_size<AdamW8bitRule>(parameters, {.min_8bit_size = 0}).bytes + 4 * 104 ==
        measured("bitsandbytes AdamW8bit min_8bit_size 0")["bytes_with_tables"]);
  // Blocks of 2,048, as in the paper, save 1.7 MiB; blocks of 64 cost 6.
  CHECK(mib(state_size<Adam8bitRule>(parameters, {.block_size = 2048}).bytes) ==
        doctest::Approx(126.083).epsilon(1e-5));
  CHECK(mib(state_size<Adam8bitRule>(parameters, {.block_size = 64}).bytes) ==
        doctest::Approx(133.7).epsilon(1e-3));
}

TEST_CASE("adam8bit state: with embeddings in f32 it is 256.79 MiB: 22.7 of 65.8 million weights") {
  const auto parameters = distilbert();
  const StateSize size = state_size<Adam8bitRule>(parameters, {.keep_f32 = "embeddings"});
  CHECK(fmt::format("{:.2f}", mib(size.bytes)) == "256.79");
  int64_t full = 0;
  for (const StateSize::Entry& entry : size.entries)
    if (entry.key == "exp_avg" && entry.dtype == DType::f32 && entry.elements >= 4096)
      full += entry.elements;
  CHECK(full == (28996 + 512) * 768);
}

TEST_CASE("adam8bit state: what a step allocates is what was predicted, to the byte") {
  for (const AdamW8bitRule::Options& options : many_options())
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
      NamedTensors parameters = three_parameters(dtype);
      for (const Shape& shape :
           {Shape{}, Shape{0, 3}, Shape{1}, Shape{4095}, Shape{4096}, Shape{4097}}) {
        Tensor p = Tensor::zeros(shape, dtype);
        p.set_requires_grad();
        parameters.push_back({fmt::format("p{}", parameters.size()), p});
      }
      const int64_t before = memory::current(memory::Category::optimizer_state);
      AdamW8bit optimizer(parameters, options);
      const StateSize predicted = state_size(optimizer);
      CHECK(memory::current(memory::Category::optimizer_state) == before);
      take_noisy_step(optimizer, parameters, 0);
      CHECK(memory::current(memory::Category::optimizer_state) - before == predicted.bytes);
      take_noisy_step(optimizer, parameters, 1);
      CHECK(memory::current(memory::Category::optimizer_state) - before == predicted.bytes);
    }
}

TEST_CASE("adam8bit state: a run saved and resumed equals the run that went on, bit for bit") {
  for (const AdamW8bitRule::Options& options : many_options())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const TemporaryFolder folder;
      const NamedTensors whole = three_parameters(dtype), cut = three_parameters(dtype);
      AdamW8bit uninterrupted(whole, options), first(cut, options);
      for (int step = 0; step < 3; ++step) {
        take_noisy_step(uninterrupted, whole, step);
        take_noisy_step(first, cut, step);
      }
      save_state(first, folder / "optimizer.safetensors");
      AdamW8bit second(cut, options);
      load_state(second, folder / "optimizer.safetensors");
      for (int step = 3; step < 8; ++step) {
        take_noisy_step(uninterrupted, whole, step);
        take_noisy_step(second, cut, step);
      }
      for (size_t i = 0; i < whole.size(); ++i)
        CHECK(whole[i].tensor.to_vector<double>() == cut[i].tensor.to_vector<double>());
      CHECK(uninterrupted.state("w").exp_avg.to_vector<int64_t>() ==
            second.state("w").exp_avg.to_vector<int64_t>());
    }
}

TEST_CASE("adam8bit state: a state of other blocks, codes or kind is refused") {
  const TemporaryFolder folder;
  const NamedTensors parameters = three_parameters();
  AdamW8bit optimizer(parameters);
  take_noisy_step(optimizer, parameters, 0);
  save_state(optimizer, folder / "optimizer.safetensors");
  const auto refusal = [&](AdamW8bitRule::Options options, OtherOptions other) {
    AdamW8bit reader(parameters, options);
    return error_of([&] { load_state(reader, folder / "optimizer.safetensors", other); });
  };
  CHECK(refusal({.block_size = 64}, OtherOptions::refuse)
            .find("block_size is 64 for w, and was \"256\"") != std::string::npos);
  CHECK(refusal({.code_map = "linear"}, OtherOptions::refuse)
            .find("code_map is linear for w, and was \"dynamic\"") != std::string::npos);
  // Even if told to keep its own options: the scales do not fit.
  CHECK(refusal({.block_size = 64}, OtherOptions::keep_mine)
            .find("w.exp_avg_absmax is f32 [22], must be f32 [88]") != std::string::npos);
  Adam8bit other(parameters);
  CHECK(error_of([&] {
          load_state(other, folder / "optimizer.safetensors");
        }).find("the state was written by \"adamw8bit\"") != std::string::npos);
}

TEST_CASE("adam8bit: the number of threads changes no bit") {
  const auto trained = [] {
    const Tensor p = parameter(noise(200003, 3), {200003});
    Adam8bit optimizer({{"p", p}});
    for (int step = 0; step < 3; ++step)
      take_noisy_step(optimizer, {{"p", p}}, step);
    return std::pair(p.to_vector<float>(), optimizer.state("p").exp_avg.to_vector<int64_t>());
  };
  const int threads = thread_count();
  set_thread_count(1);
  const auto expected = trained();
  set_thread_count(3);
  const auto got = trained();
  set_thread_count(threads);
  CHECK(got == expected);
}

TEST_CASE("adam8bit: a tensor cut between blocks is trained as the whole is") {
  const auto values = noise(9000, 3), gradients = noise(9000, 4);
  const auto part = [](const std::vector<float>& all, int64_t first, int64_t last) {
    return std::vector<float>(all.begin() + first, all.begin() + last);
  };
  const auto trained = [&](const std::vector<int64_t>& cuts) {
    NamedTensors parameters;
    for (size_t k = 0; k + 1 < cuts.size(); ++k) {
      const int64_t n = cuts[k + 1] - cuts[k];
      parameters.push_back({std::to_string(k), parameter(part(values, cuts[k], cuts[k + 1]), {n})});
    }
    Adam8bit optimizer(parameters, {.min_8bit_size = 1});
    std::vector<float> joined;
    for (int step = 0; step < 3; ++step) {
      for (size_t k = 0; k + 1 < cuts.size(); ++k)
        parameters[k].tensor.set_grad(
            Tensor::from(part(gradients, cuts[k], cuts[k + 1]), parameters[k].tensor.shape()));
      optimizer.step();
    }
    for (const NamedTensor& p : parameters)
      for (const float value : p.tensor.values<float>())
        joined.push_back(value);
    return joined;
  };
  CHECK(trained({0, 9000}) == trained({0, 256, 7 * 256, 9000}));
}

TEST_CASE("adam8bit: the clipping scale is applied as gradients are read") {
  // A power of two, so that scaling rounds nothing.
  const NamedTensors scaled = three_parameters(), given = three_parameters();
  AdamW8bit one(scaled), other(given);
  for (int step = 0; step < 3; ++step) {
    for (size_t i = 0; i < given.size(); ++i) {
      std::vector<float> gradient = noise(given[i].tensor.numel(), 3 + step);
      Tensor(scaled[i].tensor).set_grad(Tensor::from(gradient, given[i].tensor.shape()));
      for (float& value : gradient)
        value *= 0.25f;
      Tensor(given[i].tensor).set_grad(Tensor::from(gradient, given[i].tensor.shape()));
    }
    one.step(0.01, 0.25);
    other.step(0.01, 1.0);
  }
  for (size_t i = 0; i < given.size(); ++i)
    CHECK(scaled[i].tensor.to_vector<float>() == given[i].tensor.to_vector<float>());
}

TEST_CASE("adam8bit: options that make no sense are refused") {
  const auto refusal = [](Adam8bitRule::Options options) {
    return error_of([&] { Adam8bit({{"p", scalar(1.0)}}, options); });
  };
  CHECK(refusal({.lr = -1}) == "adam8bit: lr is -1, must be finite and not negative");
  CHECK(refusal({.beta2 = 1}) == "adam8bit: beta2 is 1, must be at least 0 and less than 1");
  CHECK(refusal({.block_size = 100}) ==
        "adam8bit: block_size is 100, must be a power of two from 64 to 4096");
  CHECK(refusal({.min_8bit_size = -1}) == "adam8bit: min_8bit_size is -1, must not be negative");
  CHECK(refusal({.code_map = "cubic"}) ==
        "adam8bit: code_map is \"cubic\", must be dynamic, linear, fp8_e4m3 or fp8_e5m2");
  CHECK(refusal({.behaviour = "fast"}) ==
        "adam8bit: behaviour is \"fast\", must be minim, bitsandbytes or bitsandbytes_floor");
  CHECK(refusal({.code_map = "linear", .behaviour = "bitsandbytes"}) ==
        "adam8bit: behaviour bitsandbytes has a dynamic code map of its own, code_map is linear");
}

TEST_CASE("adam8bit: groups of other blocks share the tables; groups of other codes cannot") {
  const NamedTensors parameters = three_parameters();
  AdamW8bit optimizer(NamedTensors{parameters[0]});
  optimizer.add_group(ParameterGroup{.parameters = {parameters[1]}}, {.block_size = 64});
  take_noisy_step(optimizer, parameters, 0);
  CHECK(optimizer.state("embeddings.weight").exp_avg_absmax.numel() == 79);
  AdamW8bit mixed(NamedTensors{parameters[0]});
  mixed.add_group(ParameterGroup{.parameters = {parameters[1]}}, {.code_map = "linear"});
  CHECK(error_of([&] { take_noisy_step(mixed, parameters, 0); }) ==
        "adamw8bit: groups have different codes, minim dynamic and minim linear; use an optimizer "
        "for each");
}

TEST_CASE("adam8bit: made by name, also by Hugging Face's") {
  const auto make = [](std::string_view name, const std::string& args) {
    return make_optimizer(name, {ParameterGroup{.parameters = {{"w", scalar(1.0)}}}},
                          {.optim_args = args});
  };
  CHECK(make("adam8bit", "")->name() == "adam8bit");
  CHECK(make("adamw_bnb_8bit", "")->name() == "adamw8bit");
  const auto optimizer = make("adamw_8bit", "block_size=2048,keep_f32=embeddings|LayerNorm");
  CHECK(optimizer->name() == "adamw8bit");
  for (const auto& [key, value] : optimizer->options_of(0)) {
    if (key == "block_size") CHECK(value == "2048");
    if (key == "keep_f32") CHECK(value == "embeddings|LayerNorm");
  }
}
