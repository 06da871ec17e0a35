#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "optim/fields.h"

// What the real optimizers were seen to keep for distilbert-base-cased with 2 labels.
namespace minim::test {

inline nlohmann::ordered_json accounting() {
  std::ifstream file(MINIM_TEST_DATA "/accounting/accounting.json");
  return nlohmann::ordered_json::parse(file);
}

// Names and shapes of distilbert-base-cased with 2 labels.
inline std::vector<optim::ParameterSpec> distilbert() {
  std::vector<optim::ParameterSpec> parameters;
  const auto data = accounting();
  for (const auto& [name, extents] : data["shapes"].items())
    parameters.push_back({name, Shape(extents.get<std::vector<int64_t>>()), DType::f32});
  return parameters;
}

// The entry of one optimizer; the test fails if there is none.
inline nlohmann::ordered_json measured(const std::string& optimizer) {
  const auto data = accounting();
  for (const auto& entry : data["optimizers"])
    if (entry["optimizer"] == optimizer) return entry;
  FAIL("no such optimizer: " << optimizer);
  return {};
}

}  // namespace minim::test
