#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/safetensors.h"
#include "core/safetensors_header.h"
#include "tests/core/temporary_folder.h"

using minim::Checkpoint;
using minim::DType;
using minim::Error;
using minim::parse_safetensors_header;
using minim::read_safetensors;
using minim::SafetensorsError;
using minim::Shape;
using minim::Tensor;
using minim::write_whole_file;
using minim::test::error_of;
using minim::test::from_hex;
using minim::test::TemporaryFolder;

namespace {

const std::string data = MINIM_TEST_DATA "/safetensors/";

std::vector<nlohmann::json> json_lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(file, line);)
    rows.push_back(nlohmann::json::parse(line));
  return rows;
}

// "ok", or the reference reader's name of the rule that the file breaks.
std::string verdict(const std::string& file) {
  try {
    parse_safetensors_header("file", file);
    return "ok";
  } catch (const SafetensorsError& error) {
    return std::string(error.rule());
  }
}

// A file of that header, unpadded, and buffer.
std::string file_of(const std::string& header, const std::string& buffer = "") {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + buffer;
}

// What follows the path in the message about a file.
std::string complaint(const std::string& file) {
  return error_of([&] { parse_safetensors_header("f", file); });
}

Checkpoint read_bytes(const TemporaryFolder& folder, const std::string& bytes) {
  write_whole_file(folder / "t.safetensors", bytes);
  return read_safetensors(folder / "t.safetensors");
}

}  // namespace

TEST_CASE("each whole file is accepted or refused under the rule that the reference names") {
  const auto rows = json_lines(data + "vectors.jsonl");
  CHECK(rows.size() == 184);
  for (const auto& row : rows) {
    const std::string required = row["required"];
    const std::string got = verdict(from_hex(row["hex"]));
    INFO(row["name"], ": got ", got, ", required ", required);
    if (required == "reject") {
      CHECK(got != "ok");
    } else if (required != "either") {
      CHECK(got == required);
    }
  }
}

TEST_CASE("a file cut after any byte is refused under the rule that the reference names") {
  const auto truncated = nlohmann::json::parse(minim::read_whole_file(data + "truncated.json"));
  const std::string whole = from_hex(truncated["hex"]);
  const auto& expected = truncated["by_length"];
  REQUIRE(expected.size() == whole.size() + 1);
  for (size_t n = 0; n <= whole.size(); ++n) {
    CAPTURE(n);
    CHECK(verdict(whole.substr(0, n)) == expected[n]);
  }
}

// The files are built as recipes.jsonl says; their size shows that they are the intended ones.
TEST_CASE("large and deeply nested headers get the verdict of the reference") {
  for (const auto& row : json_lines(data + "recipes.jsonl")) {
    const std::string name = row["name"];
    CAPTURE(name);
    std::string header;
    std::string buffer;
    if (name == "tensors_100000") {
      for (int i = 0; i < 100000; ++i) {
        header += fmt::format(R"({}"t{:06}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})",
                              i ? "," : "{", i, i, i + 1);
        buffer += char(i % 251);
      }
      header += "}";
    } else if (name == "overlaps_10000") {
      for (int i = 0; i < 10000; ++i) {
        header += fmt::format(R"({}"t{:05}":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})",
                              i ? "," : "{", i);
      }
      header += "}";
      buffer = "\1\2\3\4";
    } else if (name.starts_with("nested_")) {
      const size_t depth = row["depth"];
      header = R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":)" +
               std::string(depth, '[') + std::string(depth, ']') + "}}";
      buffer = "\1";
    } else {
      header = "{}";
      header.resize(row["header_bytes"], ' ');
    }
    if (!name.starts_with("header_")) header.resize((header.size() + 7) / 8 * 8, ' ');
    const std::string file = file_of(header, buffer);
    CHECK(file.size() == row["file_bytes"].get<size_t>());
    CHECK(verdict(file) == row["library"]);
  }
}

TEST_CASE("the message names file, rule, tensor and numbers") {
  CHECK(complaint("abc") == "f: header too small: the file has 3 bytes, it must have at least 8");
  CHECK(complaint(std::string(7, '\0') + "\1") ==
        "f: header too large: 72057594037927936 bytes, it may have at most 100000000");
  CHECK(complaint(file_of("{}").substr(0, 9)) ==
        "f: invalid header length: 2 bytes, of which the file of 9 bytes has only 1");
  CHECK(complaint(file_of("{\"\xff\"")) == "f: invalid UTF-8 in header: byte 2 of it");
  CHECK(
      complaint(file_of(R"({"a\n":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", "xxx")) ==
      R"(f: invalid offset for tensor "a\x0a": data_offsets [1, 3], it must begin at 0, where the )"
      "one before it ends, and not end before that");
  CHECK(
      complaint(file_of(
          R"({"t":{"dtype":"I32","shape":[2,18446744073709551614],"data_offsets":[0,0]}})")) ==
      R"(f: overflow computing buffer size: tensor "t" of I32 [2, 18446744073709551614] has more )"
      "than 2^64 bits");
  CHECK(
      complaint(file_of(R"({"t":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", "xx")) ==
      R"(f: misaligned slice: tensor "t" of F4 [3] has 12 bits, which is no whole number of bytes)");
  CHECK(complaint(file_of(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "xxxx")) ==
        R"(f: invalid shape, data type, or offset for tensor "t": F32 [2] takes 8 bytes, its )"
        "data_offsets [0, 4] span 4");
  CHECK(
      complaint(file_of(R"({"t":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "x")) ==
      "f: incomplete metadata, file not fully covered: its tensors take 2 bytes, after the header "
      "there are 1");
}

TEST_CASE("the message about the JSON of a header says what is wrong with it") {
  const auto json = [](const std::string& header) {
    const std::string text = complaint(file_of(header, "x"));
    const std::string prefix = "f: invalid JSON in header: ";
    CHECK(text.starts_with(prefix));
    return text.substr(std::min(prefix.size(), text.size()));
  };
  const auto tensor = [](const std::string& dtype, const std::string& shape,
                         const std::string& offsets) {
    return fmt::format(R"({{"t":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape,
                       offsets);
  };
  CHECK(json("") == "no JSON at all");
  CHECK(json("[]") == "a list instead of an object");
  CHECK(json("\xef\xbb\xbf{}") == "a byte order mark");
  CHECK(json(std::string("{}\0", 3)) == "a NUL character at byte 2");
  CHECK(json("{t").starts_with("a syntax error at byte "));
  CHECK(json(tensor("\"F33\"", "[1]", "[0,1]")) == R"(unknown dtype "F33" of tensor "t")");
  CHECK(json(tensor("8", "[1]", "[0,1]")) ==
        R"(a number instead of a name as dtype of tensor "t")");
  CHECK(json(tensor("\"U8\"", "[-0]", "[0,1]")) ==
        R"(a negative number in the shape of tensor "t", which must be a list of integers from 0)");
  CHECK(json(tensor("\"U8\"", "[1e0]", "[0,1]")) ==
        "a number that is not an integer below 2^64 in the shape of tensor \"t\", which must be a "
        "list of integers from 0");
  CHECK(json(tensor("\"U8\"", "[1]", "[0,1,1]")) == R"(more than two offsets in "t")");
  CHECK(json(tensor("\"U8\"", "[1]", "[0]")) == R"(1 offsets instead of two in tensor "t")");
  CHECK(json(R"({"t":{"dtype":"U8","shape":[1]}})") == R"(no data_offsets in tensor "t")");
  CHECK(json(R"({"t":{"dtype":"U8","dtype":"U8"}})") == R"(dtype twice in tensor "t")");
  CHECK(json(R"({"t":1})") == R"(a number instead of an object as tensor "t")");
  CHECK(json(R"({"__metadata__":{"a":1}})") == R"(a number instead of a string as metadata "a")");
  CHECK(json(R"({"__metadata__":{"a":"1","a":"1"}})") == R"(metadata key "a" twice)");
  CHECK(json(R"({"__metadata__":{},"__metadata__":{}})") == "__metadata__ twice");
  const std::string one = R"("t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  CHECK(json("{" + one + "," + one + "}") == R"(tensor "t" twice)");
  CHECK(json(R"({"t":{"x":)" + std::string(126, '[')) ==
        "objects and lists nested deeper than 127");
  CHECK(json("{\"" + std::string(65536, 'n') + "\":{}}") ==
        "a name of 65536 bytes, at most 65535 are read");
}

TEST_CASE("tensors are read with names in the order of their bytes, values and metadata") {
  const Checkpoint file = read_safetensors(data + "write/classifier.safetensors");
  CHECK(file.metadata() == minim::Metadata{{"format", "pt"}});
  CHECK(file.tensors().size() == 9);
  CHECK(file.tensors()[0].name == "classifier.bias");
  CHECK(file.contains("pre_classifier.weight"));
  CHECK_FALSE(file.contains("pre_classifier.weigh"));
  const auto written = json_lines(data + "write/inputs.jsonl")[0];
  for (const auto& row : written["tensors"]) {
    const Tensor tensor = file.tensor(row["name"].get<std::string>());
    const std::string expected = from_hex(row["data_hex"]);
    CHECK(tensor.dtype() == DType::f32);
    REQUIRE(size_t(tensor.bytes()) == expected.size());
    CHECK(std::memcmp(tensor.raw(), expected.data(), expected.size()) == 0);
  }
}

TEST_CASE("a loaded tensor is the mapped file, may be written to and outlives its checkpoint") {
  const std::string path = data + "write/classifier.safetensors";
  const std::string before = minim::read_whole_file(path);
  Tensor tensor;
  {
    const Checkpoint file = read_safetensors(path);
    tensor = file.tensor("classifier.bias");
    CHECK(tensor.raw() == file.find("classifier.bias")->data);
  }
  tensor.data<float>()[0] = 7;
  CHECK(tensor.to_vector<float>()[0] == 7);
  CHECK(minim::read_whole_file(path) == before);
}

TEST_CASE("tensors that lie unaligned are copied") {
  const TemporaryFolder folder;
  int cases = 0;
  for (const auto& row : json_lines(data + "vectors.jsonl")) {
    if (row["group"] != "align") continue;
    ++cases;
    const Checkpoint file = read_bytes(folder, from_hex(row["hex"]));
    const bool by_u8 = row["name"] == "unaligned_by_u8";
    const Tensor tensor = file.tensor(by_u8 ? "f" : "t");
    CHECK(reinterpret_cast<uintptr_t>(tensor.raw()) % 4 == 0);
    // 1.5, -2.25 and 3.5 are what the bytes 0000c03f, 000010c0 and 00006040 mean.
    CHECK(tensor.to_vector<float>() ==
          (by_u8 ? std::vector<float>{3.5f} : std::vector<float>{1.5f, -2.25f}));
  }
  CHECK(cases == 4);
}

TEST_CASE("any byte but 0 of a BOOL tensor is true") {
  const TemporaryFolder folder;
  const Checkpoint file =
      read_bytes(folder, file_of(R"({"t":{"dtype":"BOOL","shape":[4],"data_offsets":[0,4]}})",
                                 std::string("\0\1\2\xff", 4)));
  CHECK(file.tensor("t").to_vector<int64_t>() == std::vector<int64_t>{0, 1, 1, 1});
}

TEST_CASE("scalars and tensors without elements load") {
  const TemporaryFolder folder;
  const Checkpoint file =
      read_bytes(folder, file_of(R"({"s":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
                                 R"("z":{"dtype":"F64","shape":[3,0,2],"data_offsets":[1,1]}})",
                                 "\5"));
  CHECK(file.tensor("s").shape() == Shape{});
  CHECK(file.tensor("s").item() == 5);
  CHECK(file.tensor("z").shape() == Shape{3, 0, 2});
  CHECK(file.tensor("z").numel() == 0);
}

TEST_CASE("what can be listed but not loaded is refused by name") {
  const TemporaryFolder folder;
  const Checkpoint file = read_bytes(
      folder, file_of(R"({"i8":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},)"
                      R"("deep":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[2,3]},)"
                      R"("huge":{"dtype":"U8","shape":[0,9223372036854775807,2],)"
                      R"("data_offsets":[3,3]}})",
                      "xyz"));
  CHECK(name_of(file.find("i8")->dtype) == "I8");
  const std::string path = folder / "t.safetensors";
  CHECK(error_of([&] { file.tensor("i8"); }) ==
        path +
            ": tensor \"i8\" has dtype I8; F32, F64, F16, BF16, I64, I32, U8 and BOOL can be "
            "loaded");
  CHECK(error_of([&] { file.tensor("deep"); }) ==
        path + ": tensor \"deep\" has 9 dimensions, at most 8 can be loaded");
  CHECK(error_of([&] { file.tensor("huge"); }) ==
        path + ": tensor \"huge\" of shape [0, 9223372036854775807, 2] is too large to be loaded");
  CHECK(error_of([&] { file.tensor("none"); }) == path + ": has no tensor \"none\"");
}

TEST_CASE("a sparse file that claims a terabyte is opened without memory for it") {
  const TemporaryFolder folder;
  const std::string path = folder / "sparse.safetensors";
  write_whole_file(path, file_of(R"({"t":{"dtype":"U8","shape":[1099511627776],)"
                                 R"("data_offsets":[0,1099511627776]}})"));
  std::error_code refused;
  std::filesystem::resize_file(path, std::filesystem::file_size(path) + (1ull << 40), refused);
  if (refused) return;  // the file system has no such files
  const Checkpoint file = read_safetensors(path);
  CHECK(file.tensor("t").numel() == 1ll << 40);
}

// Seeds are fixed, so a failure repeats.
TEST_CASE("files with flipped, lost or added bytes load or throw Error") {
  const TemporaryFolder folder;
  std::mt19937 random(1);
  const std::string whole = minim::read_whole_file(data + "write/odd_names.safetensors");
  for (int i = 0; i < 2000; ++i) {
    std::string bytes = whole;
    for (unsigned n = random() % 3; n < 3; ++n) {
      bytes[random() % bytes.size()] ^= char(1 + random() % 255);
    }
    if (i % 10 == 0) bytes.resize(random() % (bytes.size() + 8));
    try {
      parse_safetensors_header("f", bytes);
      const Checkpoint file = read_bytes(folder, bytes);
      for (const auto& stored : file.tensors())
        file.tensor(stored.name).to_vector<float>();
    } catch (const Error&) {
    }
  }
}
