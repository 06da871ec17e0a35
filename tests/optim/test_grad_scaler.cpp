// Loss scaling, against a derivation by hand.
#include <limits>

#include <doctest/doctest.h>

#include "autograd/ops.h"
#include "optim/adamw.h"
#include "optim/clip.h"
#include "optim/grad_scaler.h"
#include "optim/sgd.h"
#include "tests/core/temporary_folder.h"

namespace minim::optim {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

struct OneWeight {
  OneWeight() { w.set_requires_grad(); }
  NamedTensors parameters() const { return {{"w", w}}; }
  // The gradient of the scaled loss `slope * w`, or an infinite one.
  void backward(const GradScaler& scaler, double slope, bool overflows = false) {
    scaler.scale(sum(w * slope)).backward();
    if (overflows) w.set_grad(Tensor::from({infinity}, {1}));
  }
  float value() const { return w.values<float>()[0]; }
  Tensor w = Tensor::from({1.0f}, {1});
};

TEST_CASE("the loss is multiplied, and the step divides again") {
  OneWeight one;
  Sgd sgd(one.parameters(), {.lr = 0.5});
  GradScaler scaler;
  CHECK(scaler.get_scale() == 65536.0);
  one.backward(scaler, 0.25);
  CHECK(one.w.grad().item() == 0.25 * 65536);
  CHECK(scaler.unscaled_norm(one.parameters()) == 0.25);
  CHECK(scaler.step(sgd));
  CHECK(one.value() == 1.0f - 0.5f * 0.25f);  // exact: the scale is a power of two
}

TEST_CASE("the scale grows after good updates and shrinks after an overflow, as derived by hand") {
  OneWeight one;
  AdamW adamw(one.parameters(), {.lr = 0.1});
  GradScaler scaler({.init_scale = 8, .growth_interval = 3});
  //                         update:   1      2     3      4     5      6     7     8     9
  const bool overflows[] = /*     */ {false, true, false, true, true, false, false, false, false};
  const double scale_after[] = /* */ {8, 4, 4, 2, 1, 1, 1, 2, 2};
  const int64_t tracker_after[] = {1, 0, 1, 0, 0, 1, 2, 0, 1};
  const int64_t steps_after[] = {1, 1, 2, 2, 2, 3, 4, 5, 6};  // of AdamW's own
  int64_t skipped = 0;
  for (size_t i = 0; i < 9; ++i) {
    CAPTURE(i);
    const float before = one.value();
    one.backward(scaler, 1.0, overflows[i]);
    CHECK(scaler.step(adamw) != overflows[i]);
    scaler.update();
    adamw.zero_grad();
    skipped += overflows[i];
    CHECK(scaler.state() == GradScaler::State{scale_after[i], tracker_after[i], skipped});
    CHECK(adamw.state("w").step == steps_after[i]);
    CHECK((one.value() == before) == overflows[i]);
  }
}

TEST_CASE("an overflow in the first update leaves no state behind") {
  OneWeight one;
  AdamW adamw(one.parameters());
  GradScaler scaler;
  one.backward(scaler, 1.0, true);
  CHECK_FALSE(scaler.step(adamw));
  CHECK(adamw.state_dict().empty());
  CHECK(one.value() == 1.0f);
}

TEST_CASE("clipping goes by the norm of the gradients of the loss itself") {
  OneWeight one;
  Sgd sgd(one.parameters(), {.lr = 1.0});
  GradScaler scaler;
  one.backward(scaler, 4.0);
  const double norm = scaler.unscaled_norm(one.parameters());
  CHECK(norm == 4.0);
  scaler.step(sgd, {.gradient_scale = clip_coefficient(norm, 0.5), .gradient_norm = norm});
  CHECK(one.value() == doctest::Approx(0.5).epsilon(1e-6));  // 1 - 0.5, but for clipping's 1e-6
}

TEST_CASE("small gradients survive f16 with the scale, and not without") {
  // 1e-9 is below half of the smallest f16, 2^-24.
  CHECK(convert(Tensor::from({1e-9f}, {1}), DType::f16).item() == 0.0);
  const double scaled = convert(Tensor::from({1e-9f * 65536}, {1}), DType::f16).item() / 65536;
  CHECK(scaled == doctest::Approx(1e-9).epsilon(0x1p-11));
}

TEST_CASE("the scale never leaves the range of f32") {
  GradScaler scaler({.init_scale = 0x1p127, .growth_interval = 1});
  scaler.update();
  CHECK(scaler.get_scale() == 0x1p127);
}

TEST_CASE("a disabled scaler changes nothing") {
  OneWeight one;
  Sgd sgd(one.parameters(), {.lr = 0.5});
  GradScaler scaler({.enabled = false});
  one.backward(scaler, 0.25);
  CHECK(one.w.grad().item() == 0.25);
  CHECK(scaler.step(sgd));
  scaler.update();
  CHECK(scaler.state() == GradScaler::State{});
}

TEST_CASE("options and states that make no sense are refused") {
  CHECK(test::error_of([] { GradScaler({.init_scale = 0}); }) ==
        "grad_scaler: init_scale is 0, must be above 0");
  CHECK(test::error_of([] { GradScaler({.growth_factor = 1}); }) ==
        "grad_scaler: growth_factor is 1, must be above 1");
  CHECK(test::error_of([] { GradScaler({.backoff_factor = 1}); }) ==
        "grad_scaler: backoff_factor is 1, must lie between 0 and 1");
  CHECK(test::error_of([] { GradScaler({.growth_interval = 0}); }) ==
        "grad_scaler: growth_interval is 0, must be at least 1");
  GradScaler scaler;
  CHECK(test::error_of([&] { scaler.load_state({.scale = -1}); }) ==
        "grad_scaler: the scale is -1, must be above 0");
  CHECK(test::error_of([&] { scaler.load_state({.scale = 1, .growth_tracker = -1}); }) ==
        "grad_scaler: growth_tracker -1 and skipped_steps 0 must not be negative");
}

TEST_CASE("a step with a factor of NaN, as of gradients that are not finite, changes nothing") {
  OneWeight one;
  AdamW adamw(one.parameters(), {.lr = 0.1});
  one.w.set_grad(Tensor::from({infinity}, {1}));
  const Clipping clipping = clip_on_device(one.parameters(), 1.0, OnNonFinite::skip);
  CHECK(std::isnan(clipping.coefficient.item()));
  adamw.step({.gradient_factor = clipping.coefficient});
  CHECK(one.value() == 1.0f);
  CHECK(adamw.state_dict().empty());
  one.w.set_grad(Tensor::from({4.0f}, {1}));
  CHECK(clip_on_device(one.parameters(), 1.0, OnNonFinite::skip).coefficient.item() ==
        clip_coefficient(4.0, 1.0));
}

}  // namespace
}  // namespace minim::optim
