#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/checkpoint.h"
#include "core/file.h"
#include "core/safetensors.h"
#include "tests/core/temporary_folder.h"

using minim::Checkpoint;
using minim::read_checkpoint;
using minim::read_sharded_checkpoint;
using minim::Tensor;
using minim::write_safetensors;
using minim::write_whole_file;
using minim::test::error_of;
using minim::test::from_hex;
using minim::test::TemporaryFolder;

namespace {

const std::string sharded = MINIM_TEST_DATA "/safetensors/sharded/";
const std::string bins = MINIM_TEST_DATA "/torch_archive/";
const std::string index_name = "model.safetensors.index.json";

// Do the values equal those of tensors.json?
bool equals_good(const Checkpoint& checkpoint) {
  const auto good = nlohmann::json::parse(minim::read_whole_file(sharded + "tensors.json"));
  if (checkpoint.tensors().size() != good.size()) return false;
  for (const auto& [name, row] : good.items()) {
    const Tensor tensor = checkpoint.tensor(name);
    const std::string bytes = from_hex(row["f32_hex"]);
    const std::vector<int64_t> shape = row["shape"];
    if (tensor.shape() != minim::Shape(shape) || size_t(tensor.bytes()) != bytes.size() ||
        std::memcmp(tensor.raw(), bytes.data(), bytes.size()) != 0) {
      return false;
    }
  }
  return true;
}

// Writes two shards, "one" with tensor a and "two" with tensor b, and an index.
void write_shards(const TemporaryFolder& folder, const std::string& index) {
  write_safetensors(folder / "one.safetensors", {{"a", Tensor::full({2}, 1)}});
  write_safetensors(folder / "two.safetensors", {{"b", Tensor::full({2}, 2)}});
  write_whole_file(folder / index_name, index);
}

}  // namespace

TEST_CASE("sharded checkpoints load, or are refused with the sentence that fits") {
  const std::string norm = "\"distilbert.embeddings.LayerNorm.weight\"";
  const std::string words = "\"distilbert.embeddings.word_embeddings.weight\"";
  const std::string first = "model-00001-of-00002.safetensors";
  const std::string second = "model-00002-of-00002.safetensors";
  // What follows the path of the index; "" where the checkpoint must load.
  const std::map<std::string, std::string> expected = {
      {"good", ""},
      {"good_subfolder", ""},
      {"missing_shard", "lists shard " + second + ", which does not exist"},
      {"missing_tensor_in_shard", "says tensor " + words + " is in " + first + ", it is not"},
      {"tensor_in_both_shards",
       "tensor " + norm + " is in two shards, " + first + " and " + second},
      {"wrong_shard", "says tensor " + norm + " is in " + second + ", it is in " + first},
      {"total_size_wrong", ""},
      {"total_size_missing", ""},
      {"traversal_parent", "shard name \"../" + first + "\" leaves the model folder"},
      {"traversal_absolute", "shard name \"/etc/hostname\" is an absolute path"},
      {"name_with_nul", "shard name \"" + first + "\\x00.txt\" holds a NUL character"},
      {"name_number", "weight_map must map names to file names, for " + norm + " it has number"},
      {"no_weight_map", "has no weight_map"},
      {"weight_map_empty", "weight_map is empty"},
      {"key_twice", "tensor " + norm + " is listed twice"},
      {"shard_cut", "incomplete metadata, file not fully covered"},
      {"index_and_single", ""}};
  std::ifstream rows(sharded + "expected.jsonl");
  size_t cases = 0;
  for (std::string line; std::getline(rows, line); ++cases) {
    const auto row = nlohmann::json::parse(line);
    const std::string id = row["id"];
    const std::string required = row["required"];
    const std::string folder = sharded + id;
    CAPTURE(id);
    REQUIRE(expected.contains(id));
    const std::string error = error_of([&] { read_checkpoint(folder); });
    if (id == "shard_cut") {
      CHECK(error.starts_with(folder + "/" + first + ": " + expected.at(id)));
    } else if (!expected.at(id).empty()) {
      CHECK(error == folder + "/" + index_name + ": " + expected.at(id));
    } else {
      REQUIRE(error == "");
      const Checkpoint checkpoint = read_checkpoint(folder);
      // The reference does not read an index without metadata; its values are those of "good".
      CHECK(equals_good(checkpoint) == row["library"].value("equal_to_good", true));
      CHECK(checkpoint.unlisted().empty());
      CHECK(checkpoint.warnings().size() == (id == "total_size_wrong" ? 1 : 0));
    }
    // The expectations above agree with the table that comes with the data.
    const bool must_fail = required.starts_with("error:");
    const bool must_load = required.starts_with("ok");
    if (must_fail) CHECK(error != "");
    if (must_load) CHECK(error == "");
  }
  CHECK(cases == expected.size());
}

TEST_CASE("a wrong total size is only warned about") {
  const std::string folder = sharded + "total_size_wrong";
  CHECK(read_checkpoint(folder).warnings() ==
        std::vector<std::string>{folder + "/" + index_name +
                                 ": total_size says 1 bytes, the tensors have 1096"});
}

TEST_CASE("a tensor that the index does not list is named and not read") {
  const TemporaryFolder folder;
  write_shards(folder, R"({"weight_map":{"b":"two.safetensors","a":"one.safetensors"}})");
  write_safetensors(folder / "two.safetensors",
                    {{"b", Tensor::full({2}, 2)}, {"extra", Tensor::full({2}, 3)}});
  const Checkpoint checkpoint = read_checkpoint(folder.path());
  CHECK(checkpoint.unlisted() == std::vector<std::string>{"extra"});
  CHECK_FALSE(checkpoint.contains("extra"));
  CHECK(checkpoint.tensor("b").to_vector<float>() == std::vector<float>{2, 2});
  CHECK(checkpoint.metadata().at("format") == "pt");
}

TEST_CASE("an index that is no JSON of the right form is refused") {
  const TemporaryFolder folder;
  const std::string path = folder / index_name;
  const auto complaint = [&](const std::string& index) {
    write_whole_file(path, index);
    const std::string error = error_of([&] { read_sharded_checkpoint(path); });
    CHECK(error.starts_with(path + ": "));
    return error.substr(std::min(error.size(), path.size() + 2));
  };
  CHECK(complaint("") == "invalid JSON: it is cut off or not JSON at all");
  CHECK(complaint(R"({"weight_map":{"a":"b")") == "invalid JSON: it is cut off or not JSON at all");
  CHECK(complaint(std::string("{}\0", 3)) == "invalid JSON: it holds a NUL character");
  CHECK(complaint(std::string(200000, '[')) == "invalid JSON: nested deeper than 127");
  CHECK(complaint("[]") == "must hold a JSON object");
  CHECK(complaint(R"({"weight_map":[]})") == "weight_map must map tensor names to file names");
  CHECK(complaint(R"({"weight_map":{"a":""}})") == "a shard name is empty");
  CHECK(complaint(R"({"weight_map":{"a":"x/../../y"}})") ==
        R"(shard name "x/../../y" leaves the model folder)");
}

TEST_CASE("of several weight files the first in the documented order is read") {
  const TemporaryFolder folder;
  std::filesystem::copy(bins + "bin_zip/pytorch_model.bin", folder / "pytorch_model.bin");
  CHECK(read_checkpoint(folder.path()).source() == folder / "pytorch_model.bin");
  write_shards(folder, R"({"weight_map":{"b":"two.safetensors","a":"one.safetensors"}})");
  CHECK(read_checkpoint(folder.path()).source() == folder / index_name);
  write_safetensors(folder / "model.safetensors", {});
  CHECK(read_checkpoint(folder.path()).source() == folder / "model.safetensors");
}

TEST_CASE("shards may be torch archives") {
  const TemporaryFolder folder;
  std::filesystem::copy(bins + "bin_zip/pytorch_model.bin", folder / "part.bin");
  nlohmann::json index;
  for (const auto& stored : minim::read_safetensors(bins + "plain/model.safetensors").tensors()) {
    index["weight_map"][stored.name] = "part.bin";
  }
  write_whole_file(folder / "pytorch_model.bin.index.json", index.dump());
  CHECK(read_checkpoint(folder.path()).tensors().size() == 40);
}

TEST_CASE("a folder without weights is refused with the names that were looked for") {
  const TemporaryFolder folder;
  CHECK(error_of([&] { read_checkpoint(folder.path()); }) ==
        folder.path() +
            ": has no weights: looked for model.safetensors, model.safetensors.index.json, "
            "pytorch_model.bin and pytorch_model.bin.index.json");
  CHECK(error_of([&] { read_checkpoint(folder / "none"); }) ==
        (folder / "none") + ": there is no such folder");
}
