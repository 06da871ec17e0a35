#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tests/optim/optim_testing.h"

// What comparisons with the trajectories in tests/data/optimizers share.
namespace minim::test {

inline const std::string optimizer_references = MINIM_TEST_DATA "/optimizers/";

inline nlohmann::json read_optimizer_json(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(optimizer_references + name));
}

// Row `index` of a tensor whose first dimension counts steps.
inline Tensor row(const Tensor& steps, int64_t index) {
  Shape shape = steps.shape();
  shape.erase(0);
  return steps.view(shape, contiguous_strides(shape), index * shape.numel()).clone();
}

// Largest |got - expected| / (|expected| + 1e-3); infinity where NaN or infinities differ.
inline double worst_error(const Tensor& got, const Tensor& expected) {
  REQUIRE(got.shape() == expected.shape());
  double worst = 0;
  const auto a = got.to_vector<double>(), b = expected.to_vector<double>();
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(b[i]))
      worst = is_near(a[i], b[i], 0) ? worst : INFINITY;
    else
      worst = std::max(worst, std::abs(a[i] - b[i]) / (std::abs(b[i]) + 1e-3));
    if (std::isnan(a[i]) && !std::isnan(b[i])) worst = INFINITY;
  }
  return worst;
}

// The numbers of a nested list, in order.
inline std::vector<double> flattened(const nlohmann::json& list) {
  std::vector<double> values;
  for (const auto& entry : list)
    if (entry.is_array())
      for (const double value : flattened(entry))
        values.push_back(value);
    else
      values.push_back(entry);
  return values;
}

}  // namespace minim::test
