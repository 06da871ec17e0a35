#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "core/safetensors.h"
#include "core/safetensors_header.h"
#include "tests/core/temporary_folder.h"

using minim::Checkpoint;
using minim::DType;
using minim::NamedTensors;
using minim::read_safetensors;
using minim::read_whole_file;
using minim::Tensor;
using minim::write_safetensors;
using minim::test::error_of;
using minim::test::from_hex;
using minim::test::TemporaryFolder;

namespace {

const std::string data = MINIM_TEST_DATA "/safetensors/";

// A file that the reference writer made, and what it was made from.
struct Written {
  std::string path;
  minim::Metadata metadata;
  nlohmann::json tensors;
};

std::vector<Written> written_files() {
  std::ifstream file(data + "write/inputs.jsonl");
  std::vector<Written> all;
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    Written written{data + row["file"].get<std::string>(), {}, row["tensors"]};
    if (!row["metadata"].is_null()) written.metadata = row["metadata"];
    all.push_back(written);
  }
  return all;
}

}  // namespace

TEST_CASE("headers and order of the bytes equal those of the reference writer for every dtype") {
  const auto all = written_files();
  CHECK(all.size() == 3);
  for (const Written& written : all) {
    CAPTURE(written.path);
    std::vector<minim::SafetensorsEntry> entries;
    std::map<std::string, std::string> bytes;
    for (const auto& row : written.tensors) {
      const std::string name = row["name"];
      entries.push_back(
          {.name = name,
           .dtype = minim::stored_dtype_named(row["dtype"].get<std::string>()).value(),
           .shape = row["shape"]});
      bytes[name] = from_hex(row["data_hex"]);
    }
    std::string file = build_safetensors_header(entries, written.metadata);
    for (const auto& entry : entries)
      file += bytes[entry.name];
    CHECK(file == read_whole_file(written.path));
  }
}

TEST_CASE("files of loadable tensors equal those of the reference writer byte for byte") {
  const TemporaryFolder folder;
  int files = 0;
  for (const Written& written : written_files()) {
    const Checkpoint reference = read_safetensors(written.path);
    NamedTensors tensors;
    for (const auto& row : written.tensors) {
      const std::string name = row["name"];
      if (loaded_dtype(reference.find(name)->dtype))
        tensors.push_back({name, reference.tensor(name)});
    }
    if (tensors.size() != reference.tensors().size()) continue;  // dtypes that minim has not
    ++files;
    write_safetensors(folder / "t.safetensors", tensors, written.metadata);
    CHECK(read_whole_file(folder / "t.safetensors") == read_whole_file(written.path));
  }
  CHECK(files == 2);
}

TEST_CASE("a file without tensors holds its metadata alone") {
  const TemporaryFolder folder;
  write_safetensors(folder / "t", {});
  // 32 bytes of JSON need no padding.
  CHECK(read_whole_file(folder / "t") ==
        std::string(" \0\0\0\0\0\0\0", 8) + R"({"__metadata__":{"format":"pt"}})");
}

TEST_CASE("strided tensors are written as contiguous ones") {
  const TemporaryFolder folder;
  const Tensor matrix = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor transposed = matrix.view({3, 2}, {1, 3});
  const Tensor column = matrix.view({2}, {3}, 1);
  write_safetensors(folder / "t", {{"transposed", transposed}, {"column", column}});
  const Checkpoint file = read_safetensors(folder / "t");
  CHECK(file.tensor("transposed").shape() == minim::Shape{3, 2});
  CHECK(file.tensor("transposed").to_vector<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK(file.tensor("column").to_vector<float>() == std::vector<float>{2, 5});
}

TEST_CASE("every dtype survives writing and reading bit for bit") {
  const TemporaryFolder folder;
  NamedTensors tensors;
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64,
                            DType::u8, DType::boolean}) {
    tensors.push_back({std::string(name_of(dtype)), Tensor::full({3}, 1, dtype)});
  }
  // Not-a-number, negative zero and a subnormal have bits that arithmetic would lose.
  tensors.push_back({"odd", Tensor::from<float>({std::nanf("5"), -0.0f, 1e-45f}, {3})});
  write_safetensors(folder / "t", tensors);
  const Checkpoint file = read_safetensors(folder / "t");
  for (const auto& [name, tensor] : tensors) {
    const auto& which = name;
    CAPTURE(which);
    const Tensor again = file.tensor(name);
    CHECK(again.dtype() == tensor.dtype());
    CHECK(std::memcmp(again.raw(), tensor.raw(), size_t(tensor.bytes())) == 0);
  }
}

TEST_CASE("several metadata entries are written in the order of their keys") {
  const TemporaryFolder folder;
  write_safetensors(folder / "t", {}, {{"b", "2"}, {"a", "1\n"}, {"\xc3\xa9", "\x01"}});
  const std::string file = read_whole_file(folder / "t");
  CHECK(file.find(R"({"__metadata__":{"a":"1\n","b":"2","é":"\u0001"}})") == 8);
  CHECK(read_safetensors(folder / "t").metadata().at("a") == "1\n");
}

TEST_CASE("a checkpoint may be written over the file that it is mapped from") {
  const TemporaryFolder folder;
  write_safetensors(folder / "t", {{"a", Tensor::full({1000}, 1)}});
  const Checkpoint file = read_safetensors(folder / "t");
  const Tensor a = file.tensor("a");
  std::ranges::fill(a.values<float>(), 2.0f);
  write_safetensors(folder / "t", {{"b", a}, {"c", a}});
  CHECK(a.to_vector<float>() == std::vector<float>(1000, 2));
  CHECK(read_safetensors(folder / "t").tensor("c").to_vector<float>() ==
        std::vector<float>(1000, 2));
}

TEST_CASE("what cannot be written is refused before the file is touched") {
  const TemporaryFolder folder;
  const std::string path = folder / "t";
  minim::write_whole_file(path, "old");
  const Tensor one = Tensor::full({1}, 1);
  CHECK(error_of([&] {
          write_safetensors(path, {{"a", one}, {"a", one}});
        }) == path + ": tensor \"a\" is given twice");
  CHECK(error_of([&] {
          write_safetensors(path, {{"a", Tensor()}});
        }) == path + ": tensor \"a\" is undefined");
  CHECK(error_of([&] {
          write_safetensors(path, {{"\xff", one}});
        }) == path + ": tensor name \"\\xff\" is not UTF-8");
  CHECK(error_of([&] {
          write_safetensors(path, {{"__metadata__", one}});
        }) == path + ": no tensor can have the name \"__metadata__\"");
  CHECK(error_of([&] {
          write_safetensors(path, {}, {{"a", "\xff"}});
        }) == path + ": metadata \"a\" is not UTF-8");
  CHECK(read_whole_file(path) == "old");
}
