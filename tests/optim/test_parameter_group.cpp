#include <algorithm>
#include <fstream>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "optim/parameter_group.h"
#include "tests/optim/optim_testing.h"

using namespace minim;
using namespace minim::optim;

namespace {

// The parameters of distilbert-base-cased with a head for 2 labels, in the model's order, without
// memory worth speaking of: only the names matter.
NamedTensors distilbert() {
  NamedTensors parameters;
  const Tensor some = Tensor::zeros({2});
  const auto add = [&](const std::string& name) { parameters.push_back({name, some.clone()}); };
  const auto add_both = [&](const std::string& layer) {
    add(layer + ".weight");
    add(layer + ".bias");
  };
  add("distilbert.embeddings.word_embeddings.weight");
  add("distilbert.embeddings.position_embeddings.weight");
  add_both("distilbert.embeddings.LayerNorm");
  for (int i = 0; i < 6; ++i) {
    const std::string layer = fmt::format("distilbert.transformer.layer.{}.", i);
    for (const char* part :
         {"attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin",
          "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"})
      add_both(layer + part);
  }
  add_both("pre_classifier");
  add_both("classifier");
  return parameters;
}

struct Model {
  NamedTensors parameters() const { return distilbert(); }
};

}  // namespace

TEST_CASE("decay groups of DistilBERT: 40 matrices are decayed, 64 vectors are not") {
  const auto groups = decay_groups(Model(), 0.01);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].weight_decay == 0.01);
  CHECK(groups[1].weight_decay == 0.0);
  CHECK(groups[0].parameters.size() == 40);
  CHECK(groups[1].parameters.size() == 64);

  std::vector<std::string> decayed = {"distilbert.embeddings.word_embeddings.weight",
                                      "distilbert.embeddings.position_embeddings.weight"};
  for (int i = 0; i < 6; ++i)
    for (const char* part : {"attention.q_lin", "attention.k_lin", "attention.v_lin",
                             "attention.out_lin", "ffn.lin1", "ffn.lin2"})
      decayed.push_back(fmt::format("distilbert.transformer.layer.{}.{}.weight", i, part));
  decayed.push_back("pre_classifier.weight");
  decayed.push_back("classifier.weight");

  std::vector<std::string> others = {"distilbert.embeddings.LayerNorm.weight",
                                     "distilbert.embeddings.LayerNorm.bias"};
  for (int i = 0; i < 6; ++i)
    for (const char* part :
         {"attention.q_lin.bias", "attention.k_lin.bias", "attention.v_lin.bias",
          "attention.out_lin.bias", "sa_layer_norm.weight", "sa_layer_norm.bias", "ffn.lin1.bias",
          "ffn.lin2.bias", "output_layer_norm.weight", "output_layer_norm.bias"})
      others.push_back(fmt::format("distilbert.transformer.layer.{}.{}", i, part));
  others.push_back("pre_classifier.bias");
  others.push_back("classifier.bias");

  const auto names = [](const ParameterGroup& group) {
    std::vector<std::string> all;
    for (const NamedTensor& p : group.parameters)
      all.push_back(p.name);
    return all;
  };
  CHECK(names(groups[0]) == decayed);
  CHECK(names(groups[1]) == others);
}

TEST_CASE("decay groups: the list above is the model's, as the measured accounting lists it") {
  std::ifstream file(MINIM_TEST_DATA "/accounting/accounting.json");
  const auto shapes = nlohmann::ordered_json::parse(file)["shapes"];
  std::vector<std::string> listed, ours;
  for (const auto& [name, shape] : shapes.items())
    listed.push_back(name);
  for (const NamedTensor& p : distilbert())
    ours.push_back(p.name);
  CHECK(ours == listed);
}

TEST_CASE("what normalises is known by its name, whatever the model calls it") {
  for (const char* name :
       {"encoder.layer.0.output.LayerNorm.weight", "layernorm.weight", "model.norm.weight", "norm",
        "layers.3.input_layernorm.weight", "rmsnorm.weight", "post_attention_norm.weight",
        "final_norm", "fc.bias", "bias", "embeddings.LayerNorm.gamma"})
    CHECK_FALSE_MESSAGE(is_decayed(name), name);
  for (const char* name : {"fc.weight", "normal.weight", "norms.weight", "normalizer_lin.weight",
                           "word_embeddings.weight", "abnorm.weight", ""})
    CHECK_MESSAGE(is_decayed(name), name);
}

TEST_CASE("decay groups: a group that would be empty is left out") {
  const Tensor p = Tensor::zeros({2});
  CHECK(decay_groups(NamedTensors{{"w", p}}, 0.1).size() == 1);
  CHECK(decay_groups(NamedTensors{{"bias", p}}, 0.1).at(0).weight_decay == 0.0);
  CHECK(decay_groups(NamedTensors{}, 0.1).empty());
}

TEST_CASE("groups print their values, their size and their names") {
  const NamedTensors parameters = {{"fc.weight", Tensor::zeros({3, 2})},
                                   {"fc.bias", Tensor::zeros({3})}};
  CHECK(describe(decay_groups(parameters, 0.01)) ==
        "group 0, weight_decay 0.01: 1 tensors, 6 elements\n"
        "  fc.weight [3, 2]\n"
        "group 1, weight_decay 0: 1 tensors, 3 elements\n"
        "  fc.bias [3]\n");
}
