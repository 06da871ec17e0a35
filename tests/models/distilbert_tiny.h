#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/safetensors.h"
#include "models/distilbert.h"
#include "tests/core/temporary_folder.h"
#include "text/packing.h"

// The small model of tests/data/distilbert_tiny, its inputs and its results in transformers.
namespace minim::test {

using models::DistilBertConfig;
using models::DistilBertForSequenceClassification;
using models::DistilBertModel;
using models::LoadOptions;
using models::LoadReport;

inline const std::string tiny = MINIM_TEST_DATA "/distilbert_tiny";

inline const Checkpoint& io() {
  static const Checkpoint file = read_safetensors(tiny + "/io.safetensors");
  return file;
}
inline const Checkpoint& gradients() {
  static const Checkpoint file = read_safetensors(tiny + "/gradients.safetensors");
  return file;
}

// The model in evaluation mode.
inline DistilBertForSequenceClassification tiny_model(DType dtype = DType::f32) {
  auto model = DistilBertForSequenceClassification::from_pretrained(tiny, {.dtype = dtype});
  model.eval();
  return model;
}

// The largest difference that the README of the data allows.
inline double tolerance(DType dtype) {
  return dtype == DType::f64 ? 1e-12 : 3e-6;
}

inline double worst_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.numel() == b.numel());
  const auto x = a.to_vector<double>(), y = b.to_vector<double>();
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    REQUIRE(std::isfinite(x[i]));
    worst = std::max(worst, std::abs(x[i] - y[i]));
  }
  return worst;
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         a.to_vector<double>() == b.to_vector<double>();
}

// Inputs of a case. A case without a mask was given none, which transformers takes as all ones.
inline text::PaddedInput padded_input(const std::string& name) {
  text::PaddedInput padded;
  padded.input_ids = io().tensor(name + "/input_ids");
  padded.attention_mask = io().contains(name + "/attention_mask")
                              ? io().tensor(name + "/attention_mask")
                              : Tensor::full(padded.input_ids.shape(), 1, DType::i64);
  return padded;
}
inline PackedBatch packed(const text::PaddedInput& padded) {
  std::vector<std::string> notices;
  PackedBatch batch = text::pack_padded(padded, 0, notices);
  CHECK(notices.empty());
  return batch;
}
inline PackedBatch packed(const std::string& name) {
  return packed(padded_input(name));
}

// Labels of the cases that list them in cases.json.
inline Tensor labels_of(int64_t rows) {
  const std::vector<int64_t> labels = {0, 2, 1, 2};
  return Tensor::from(std::span(labels).first(size_t(rows)), {rows});
}

// Rows of a padded result [batch, length, dim] where the mask is 1, as a packed one has them.
inline Tensor unpadded(const Tensor& x, const Tensor& mask) {
  const auto keep = mask.to_vector<int64_t>();
  const auto values = x.to_vector<double>();
  const size_t dim = size_t(x.size(2));
  std::vector<double> rows;
  for (size_t i = 0; i < keep.size(); ++i)
    if (keep[i] == 1)
      rows.insert(rows.end(), values.begin() + long(i * dim), values.begin() + long((i + 1) * dim));
  return Tensor::from(rows, {int64_t(rows.size() / dim), int64_t(dim)});
}

}  // namespace minim::test
