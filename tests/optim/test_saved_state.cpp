#include <doctest/doctest.h>

#include "core/file.h"
#include "core/safetensors.h"
#include "optim/adafactor.h"
#include "optim/adafactor_torch.h"
#include "optim/adam8bit.h"
#include "optim/adamw.h"
#include "optim/saved_state.h"
#include "optim/state_file.h"
#include "tests/optim/optim_testing.h"

// State files, read without the optimizer and the model that they are of.
using namespace minim;
using namespace minim::optim;
using namespace minim::test;

namespace {

// Two steps of three parameters, saved; the optimizer is there to compare with.
template <class Optimizer>
struct SavedRun {
  explicit SavedRun(typename Optimizer::Options options = {}) : optimizer(make(), options) {
    for (int step = 0; step < 2; ++step) {
      for (const auto& group : optimizer.groups())
        for (const NamedTensor& p : group.parameters)
          if (p.name != "frozen")
            Tensor(p.tensor).set_grad(
                Tensor::from(noise(p.tensor.numel(), step + 3), p.tensor.shape()));
      optimizer.step();
    }
    save_state(optimizer, path);
  }
  static std::vector<ParameterGroup> make() {
    const auto one = [](const std::string& name, const Shape& shape) {
      return NamedTensor{name, parameter(noise(shape.numel(), 2), shape)};
    };
    return {{.parameters = {one("encoder.weight", {10, 60}), one("encoder.stack", {2, 3, 40})}},
            {.parameters = {one("encoder.bias", {10}), one("frozen", {3})}, .lr = 0.5}};
  }

  TemporaryFolder folder;
  std::string path = folder / "optimizer.safetensors";
  Optimizer optimizer;
};

const SavedState::Parameter& only(const SavedState& state, std::string_view name) {
  const auto found = state.find(name);
  REQUIRE(found.size() == 1);
  return *found[0];
}

}  // namespace

TEST_CASE("saved state: optimizer, options, names, shapes and steps come from the file alone") {
  const SavedRun<AdamW> saved({.weight_decay = 0.25});
  const SavedState state(saved.path);
  CHECK(state.optimizer() == "adamw");
  REQUIRE(state.groups().size() == 2);
  CHECK(state.groups()[1].parameters == std::vector<std::string>{"encoder.bias", "frozen"});
  REQUIRE(state.parameters().size() == 4);
  const SavedState::Parameter& weight = state.parameters()[0];
  CHECK(weight.name == "encoder.weight");
  CHECK(weight.shape == Shape{10, 60});
  CHECK(weight.numbers == std::vector<std::pair<std::string, double>>{{"step", 2}});
  REQUIRE(weight.tensors.size() == 2);
  CHECK(weight.tensors[1].key == "exp_avg_sq");
  CHECK(weight.tensors[1].bytes == 2400);
  CHECK(state.option(weight, "weight_decay") == "0.25");
  CHECK(state.option(state.parameters()[2], "lr") == "0.5");
  CHECK(state.option(weight, "momentum").empty());
  CHECK(state.values(weight, "exp_avg").to_vector<float>() ==
        saved.optimizer.state("encoder.weight").exp_avg.to_vector<float>());
  // What had no gradient has no state.
  CHECK(state.parameters()[3].tensors.empty());
  CHECK(!state.parameters()[3].shape.has_value());
}

TEST_CASE("saved state: the sums are what the optimizer says of itself, shared tables included") {
  const auto check_sums = [](const auto& saved) {
    const StateSize ours = SavedState(saved.path).size();
    int64_t elements = 0, bytes = 0, numbers = 0;
    for (const StateSize::Entry& entry : saved.optimizer.state_size().entries)
      if (entry.parameter != "frozen") {
        elements += entry.elements;
        bytes += entry.bytes;
      }
    for (const NamedTensor& tensor : saved.optimizer.state_dict())
      numbers += tensor.name.ends_with(".step") || tensor.name.ends_with(".RMS");
    CHECK(ours.elements == elements);
    CHECK(ours.bytes == bytes);
    CHECK(ours.numbers == numbers);
  };
  check_sums(SavedRun<AdamW>());
  check_sums(SavedRun<Adafactor>({.lr = 0.1, .relative_step = false}));
  check_sums(SavedRun<Adafactor>({.lr = 0.1, .beta1 = 0.9, .relative_step = false}));
  check_sums(SavedRun<AdafactorTorch>());
  check_sums(SavedRun<Adam8bit>({.min_8bit_size = 64}));
  check_sums(SavedRun<AdamW8bit>());  // all parameters are so small that they stay in f32
}

TEST_CASE("saved state: Adafactor's factors give the shape and the second moment, r c / mean(r)") {
  const auto check_second = [](const auto& saved, auto row_of, auto column_of) {
    const SavedState state(saved.path);
    for (const char* name : {"encoder.weight", "encoder.stack"}) {
      const SavedState::Parameter& parameter = only(state, name);
      const auto& kept = saved.optimizer.state(name);
      const std::vector<double> row = row_of(kept).template to_vector<double>();
      const std::vector<double> column = column_of(kept).template to_vector<double>();
      const Tensor second = state.factored_second_moment(parameter);
      REQUIRE(parameter.shape == second.shape());
      const int64_t rows = second.size(-2), columns = second.size(-1);
      const std::vector<double> values = second.to_vector<double>();
      for (int64_t i = 0; i < second.numel(); ++i) {
        const int64_t matrix = i / (rows * columns), r = i / columns, c = i % columns;
        double mean = 0;
        for (int64_t k = 0; k < rows; ++k)
          mean += row[size_t(matrix * rows + k)] / double(rows);
        // One rounding to f32.
        CHECK(values[size_t(i)] ==
              doctest::Approx(row[size_t(r)] * column[size_t(matrix * columns + c)] / mean)
                  .epsilon(1e-7));
      }
    }
    CHECK(!state.factored_second_moment(only(state, "encoder.bias")).defined());
    CHECK(only(state, "encoder.bias").shape == Shape{10});
  };
  check_second(
      SavedRun<Adafactor>({.lr = 0.1, .relative_step = false}),
      [](const auto& s) { return s.exp_avg_sq_row; },
      [](const auto& s) { return s.exp_avg_sq_col; });
  check_second(
      SavedRun<AdafactorTorch>(), [](const auto& s) { return s.row_var; },
      [](const auto& s) { return s.col_var; });
}

TEST_CASE("saved state: codes are decoded with the map and the block size of the options") {
  for (const char* behaviour : {"minim", "bitsandbytes"}) {
    const SavedRun<Adam8bit> saved(
        {.block_size = 64, .min_8bit_size = 100, .behaviour = behaviour});
    const SavedState state(saved.path);
    const SavedState::Parameter& weight = only(state, "encoder.weight");
    CHECK(state.is_quantized(weight, "exp_avg"));
    CHECK(!state.is_quantized(weight, "exp_avg_absmax"));
    CHECK(!state.is_quantized(only(state, "encoder.bias"), "exp_avg"));
    const auto& kept = saved.optimizer.state("encoder.weight");
    const MomentMaps maps = moment_maps(behaviour, "dynamic");
    CHECK(state.values(weight, "exp_avg").to_vector<float>() ==
          dequantize_blockwise({kept.exp_avg, kept.exp_avg_absmax, 64}, maps.exp_avg)
              .to_vector<float>());
    CHECK(state.values(weight, "exp_avg_sq").to_vector<float>() ==
          dequantize_blockwise({kept.exp_avg_sq, kept.exp_avg_sq_absmax, 64}, maps.exp_avg_sq)
              .to_vector<float>());
  }
}

TEST_CASE("saved state: parameters are found by name, pattern and the end of their name") {
  const SavedRun<AdamW> saved;
  const SavedState state(saved.path);
  CHECK(only(state, "encoder.bias").name == "encoder.bias");
  CHECK(only(state, "stack").name == "encoder.stack");
  CHECK(state.find("encoder.*").size() == 3);
  CHECK(error_of([&] { state.find("encoder.wieght"); }) ==
        saved.path +
            ": none of the 4 parameters is named encoder.wieght; similar: "
            "encoder.weight");
  CHECK(error_of([&] { state.find("x"); }) == saved.path + ": none of the 4 parameters is named x");
}

TEST_CASE("saved state: opening a file allocates no state") {
  const SavedRun<AdamW> saved;
  const int64_t before = memory::current();
  const SavedState state(saved.path);
  const Tensor mapped = state.tensor(only(state, "encoder.weight"), "exp_avg");
  CHECK(memory::current() == before);
}

TEST_CASE("saved state: what is no state file, or contradicts itself, is refused in a sentence") {
  const SavedRun<Adam8bit> saved({.block_size = 64, .min_8bit_size = 100});
  const std::string path = saved.folder / "bad.safetensors";
  const auto error = [&](const NamedTensors& tensors, const Metadata& metadata) {
    write_safetensors(path, tensors, metadata);
    return error_of([&] {
      const SavedState state(path);
      for (const SavedState::Parameter& parameter : state.parameters())
        for (const StateSize::Entry& tensor : parameter.tensors)
          state.values(parameter, tensor.key);
    });
  };
  const NamedTensors good = saved.optimizer.state_dict();
  const Metadata metadata = saved.optimizer.metadata();
  const auto with = [&](const std::string& key, const std::string& value) {
    Metadata changed = metadata;
    changed[key] = value;
    return changed;
  };
  CHECK(error(good, metadata).empty());
  CHECK(error({}, {{"format", "pt"}}) == path +
                                             ": the metadata has no \"optimizer\"; the file was "
                                             "not written by an optimizer");
  CHECK(error(good, with("version", "7")) == path + ": the state has version \"7\", must be 1");
  CHECK(error(good, with("groups", "many")) ==
        path + ": the metadata has groups = \"many\", which its other entries do not bear out");
  CHECK(error(good, with("group.1.parameters", "frozen")) ==
        path +
            ": has \"encoder.bias.step\", which is the state of none of the parameters that "
            "it lists");
  CHECK(error(good, with("group.1.parameters", "encoder.weight\nencoder.bias\nfrozen")) ==
        path + ": the metadata lists parameter \"encoder.weight\" twice");
  CHECK(error(good, with("group.0.block_size", "128")) ==
        path +
            ": encoder.weight.exp_avg is u8 [10, 60] with scales f32 [10], which do not fit "
            "blocks of \"128\"");
  CHECK(error(good, with("group.0.block_size", "0")) != "");
  CHECK(error(good, with("group.0.code_map", "cubic")) ==
        path +
            ": code map: \"cubic\" is unknown; there are dynamic, linear, fp8_e4m3, fp8_e5m2, "
            "bitsandbytes");

  const std::string bytes = read_whole_file(saved.path);
  for (const size_t size : {size_t(0), size_t(7), size_t(100), bytes.size() - 1}) {
    write_whole_file(path, bytes.substr(0, size));
    CHECK(error_of([&] { SavedState state(path); }).starts_with(path + ": "));
  }
}
