#include <nlohmann/json.hpp>

#include "optim/adafactor.h"
#include "optim/adam8bit.h"
#include "optim/state_file.h"
#include "tests/optim/optim_testing.h"
#include "tests/train/small_model.h"
#include "train/checkpoint.h"
#include "train/state_report.h"

// What is shown of an optimizer's state.
using namespace minim;
using namespace minim::test;
using nlohmann::json;

namespace {

bool has(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE("\"" << part << "\" is not in:\n" << text);
  return found;
}

// A matrix of 8 rows and 16 columns whose gradient is 1 in the first row and 2 in all others, and a
// vector, after one step.
template <class Optimizer>
std::string saved_state(const TemporaryFolder& folder, typename Optimizer::Options options) {
  Tensor weight = parameter(noise(128, 1), {8, 16}), bias = parameter(noise(3, 2), {3});
  std::vector<float> gradient(128, 2.0f);
  std::fill_n(gradient.begin(), 16, 1.0f);
  weight.set_grad(Tensor::from(gradient, {8, 16}));
  bias.set_grad(Tensor::full({3}, -1.0));
  Optimizer optimizer({{"layer.weight", weight}, {"layer.bias", bias}}, options);
  optimizer.step();
  const std::string path = folder / "optimizer.safetensors";
  optim::save_state(optimizer, path);
  return path;
}

std::string report(const optim::SavedState& state, std::string_view name) {
  return train::parameter_report(state, *state.find(name).at(0));
}

}  // namespace

TEST_CASE("a tensor is printed as PyTorch prints it, long dimensions with their ends") {
  CHECK(train::printed_values(Tensor::from({1.5, -0.25}, {2})) == "[ 1.5000e+00, -2.5000e-01]");
  CHECK(train::printed_values(Tensor::from({1.0}, {})) == " 1.0000e+00");
  CHECK(train::printed_values(Tensor::zeros({0})) == "[]");
  CHECK(train::printed_values(Tensor::from({1, 2, 3, 4}, {2, 2})) ==
        "[[ 1.0000e+00,  2.0000e+00],\n [ 3.0000e+00,  4.0000e+00]]");
  CHECK(train::printed_values(Tensor::from({0, 1, 2, 3, 4, 5, 6}, {7})) ==
        "[ 0.0000e+00,  1.0000e+00,  2.0000e+00, ...,  4.0000e+00,  5.0000e+00,  6.0000e+00]");
}

TEST_CASE("AdamW's table has its two moments, and sums them up") {
  const TemporaryFolder folder;
  const optim::SavedState state(saved_state<optim::AdamW>(folder, {.lr = 0.125}));
  const std::string table = train::state_table(state);
  CHECK(has(table, "/optimizer.safetensors: adamw, 2 parameters, step 1\n"));
  CHECK(has(table, "group 0: 2 parameters; "));
  CHECK(has(table, "lr 0.125"));
  CHECK(has(table,
            "parameter       shape  step  exp_avg  exp_avg_sq  elements  bytes\n"
            "layer.weight  [8, 16]     1      f32         f32       256  1,024\n"
            "layer.bias        [3]     1      f32         f32         6     24\n"));
  CHECK(has(table, "in all                   4       262  1,048  1.0 KiB\n"));
  CHECK(has(table, "264 elements with the 2 step counters and other single numbers\n"));
}

TEST_CASE("a moment is shown with its statistics: m = 0.1 g after one step") {
  const TemporaryFolder folder;
  const optim::SavedState state(saved_state<optim::AdamW>(folder, {}));
  const std::string text = report(state, "layer.weight");
  CHECK(has(text, "layer.weight [8, 16]\n"));
  CHECK(has(text, "exp_avg  f32 [8, 16], 128 elements, 512 B\n"));
  // 16 of 0.1 and 112 of 0.2: mean 0.1875, mean square 0.03625.
  CHECK(has(text, "  min 0.1  mean 0.1875  max 0.2  rms 0.1904  zeros 0.0 %\n"));
  CHECK(has(text, "[[ 1.0000e-01,  1.0000e-01,  1.0000e-01, ..., "));
}

TEST_CASE("Adafactor's factors are shown with the second moment that they stand for") {
  const TemporaryFolder folder;
  const optim::SavedState state(saved_state<optim::Adafactor>(folder, {}));
  CHECK(has(train::state_table(state),
            "parameter       shape  step  exp_avg_sq_row  exp_avg_sq_col  exp_avg_sq  elements"));
  // The first step takes the squares as they are: rows 1, 4, 4, ..., mean 29 / 8, columns 29 / 8.
  const std::string text = report(state, "layer.weight");
  CHECK(has(text, "exp_avg_sq_row  f32 [8], 8 elements, 32 B\n  min 1  mean 3.625  max 4"));
  CHECK(has(text, "exp_avg_sq_col  f32 [16], 16 elements, 64 B\n  min 3.625"));
  CHECK(has(text,
            "exp_avg_sq  f32 [8, 16], 128 elements, not kept: row * column / mean(row)\n"
            "  min 1  mean 3.625  max 4"));
}

TEST_CASE("of codes their use, scales and possible error are shown") {
  const TemporaryFolder folder;
  const optim::SavedState state(
      saved_state<optim::Adam8bit>(folder, {.block_size = 64, .min_8bit_size = 64}));
  const std::string text = report(state, "layer.weight");
  CHECK(has(text, "exp_avg  u8 [8, 16], 128 elements, 136 B\n"));
  // Quotients 0.5 and 1; 112 of 128 have the code of 1.
  CHECK(
      has(text, "codes: 2 of 256 in use; 87.5 % of the elements have the one for 1 of the scale"));
  CHECK(has(text, "scales of 2 blocks of 64: least 0.2, median 0.2, largest 0.2"));
  // 0.5 lies in a gap of 0.9 / 64, half of which is 0.00703, times 0.2.
  CHECK(has(text, "error: at most 0.001406 ("));
  CHECK(has(train::state_table(state), "exp_avg_values (shared)"));
}

TEST_CASE("a parameter without state says so") {
  const TemporaryFolder folder;
  Tensor trained = parameter(noise(4, 1), {4}), other = parameter(noise(4, 2), {4});
  trained.set_grad(Tensor::full({4}, 1.0));
  optim::AdamW optimizer({{"trained", trained}, {"other", other}});
  optimizer.step();
  optim::save_state(optimizer, folder / "s.safetensors");
  const optim::SavedState state(folder / "s.safetensors");
  CHECK(has(report(state, "other"), "no state: it has had no gradient\n"));
  CHECK(has(train::state_table(state), "steps 0 to 1\n"));
}

TEST_CASE("programs get the same as JSON") {
  const TemporaryFolder folder;
  const optim::SavedState state(
      saved_state<optim::Adam8bit>(folder, {.block_size = 64, .min_8bit_size = 64}));
  const json table = json::parse(train::state_json(state));
  CHECK(table["optimizer"] == "adam8bit");
  CHECK(table["groups"][0]["options"]["block_size"] == "64");
  CHECK(table["parameters"].size() == 2);
  CHECK(table["parameters"][0]["shape"] == json({8, 16}));
  CHECK(table["parameters"][0]["numbers"]["step"] == 1);
  // 2 * 128 codes, 2 * 2 scales, 2 * 3 numbers in f32, 2 tables of 256.
  CHECK(table["elements"] == 256 + 4 + 6 + 512);
  CHECK(table["bytes"] == 256 + 4 * (4 + 6 + 512));

  const json one = json::parse(train::state_json(state, state.find("layer.weight")));
  REQUIRE(one["parameters"].size() == 1);
  const json& moment = one["parameters"][0]["tensors"][0];
  CHECK(moment["key"] == "exp_avg");
  CHECK(moment["dtype"] == "u8");
  CHECK(moment["max"].get<double>() == doctest::Approx(0.2).epsilon(1e-6));
  CHECK(moment["codes"]["codes_used"] == 2);
  CHECK(moment["codes"]["blocks"] == 2);
  CHECK(moment["first_values"].size() == 8);
}

TEST_CASE("the state of a run folder is its own, or else that of its newest checkpoint") {
  const TemporaryFolder folder;
  CHECK(train::find_optimizer_state(folder / "file.safetensors") == folder / "file.safetensors");
  CHECK(error_of([&] { train::find_optimizer_state(folder.path()); }) ==
        folder.path() +
            ": holds no optimizer.safetensors, and neither does a checkpoint in it; "
            "train writes it unless told --save-only-model");
  for (const char* name : {"checkpoint-9", "checkpoint-10", "checkpoint-11"})
    std::filesystem::create_directory(folder / name);
  write_whole_file(folder / "checkpoint-9/optimizer.safetensors", "");
  write_whole_file(folder / "checkpoint-10/optimizer.safetensors", "");
  CHECK(train::find_optimizer_state(folder.path()) ==
        folder / "checkpoint-10/optimizer.safetensors");
  write_whole_file(folder / "optimizer.safetensors", "");
  CHECK(train::find_optimizer_state(folder.path()) == folder / "optimizer.safetensors");
}
