#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/error.h"
#include "core/file.h"
#include "core/safetensors.h"
#include "core/torch_archive.h"
#include "tests/core/temporary_folder.h"

using minim::Checkpoint;
using minim::Error;
using minim::read_safetensors;
using minim::read_torch_archive;
using minim::read_whole_file;
using minim::Shape;
using minim::Tensor;
using minim::test::error_of;
using minim::test::TemporaryFolder;

namespace {

const std::string data = MINIM_TEST_DATA "/torch_archive/";
const std::string zip_file = data + "bin_zip/pytorch_model.bin";
const std::string old_file = data + "bin_before_1_6/pytorch_model.bin";

void check_equal(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  REQUIRE(a.dtype() == b.dtype());
  CHECK(std::memcmp(a.contiguous().raw(), b.contiguous().raw(), size_t(a.bytes())) == 0);
}

// Not through write_whole_file, whose flushing to the disk would make thousands of files slow; file
// systems flush a file that is cut and written again, too.
void write_quickly(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

// What follows the path in the message about a file of those bytes.
std::string complaint(const std::string& bytes) {
  const TemporaryFolder folder;
  const std::string path = folder / "p.bin";
  write_quickly(path, bytes);
  const std::string error = error_of([&] { read_torch_archive(path); });
  CHECK(error.starts_with(path + ": "));
  return error.substr(std::min(error.size(), path.size() + 2));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != text.npos);
  REQUIRE(from.size() == to.size());
  return text.replace(at, from.size(), to);
}

// --- A file in the old layout, put together from opcodes. ---

using Bytes = std::string;

// BINUNICODE, BININT
Bytes text(const std::string& value) {
  return Bytes("X") + Bytes{char(value.size()), 0, 0, 0} + value;
}
Bytes number(int32_t value) {
  Bytes bytes(4, '\0');
  std::memcpy(bytes.data(), &value, 4);
  return Bytes("J") + bytes;
}
Bytes tuple(const std::vector<Bytes>& items) {
  Bytes all = "(";
  for (const Bytes& item : items)
    all += item;
  return all + "t";
}
Bytes global(const std::string& module, const std::string& name) {
  return Bytes("c") + module + "\n" + name + "\n";
}
Bytes sizes(const std::vector<int32_t>& values) {
  std::vector<Bytes> items;
  for (const int32_t value : values)
    items.push_back(number(value));
  return tuple(items);
}
Bytes storage(const std::string& type, int32_t elements) {
  return tuple({text("storage"), global("torch", type), text("s"), text("cpu"), number(elements)}) +
         "Q";
}
Bytes tensor(const Bytes& of, int32_t offset, const Bytes& shape, const Bytes& strides) {
  return global("torch._utils", "_rebuild_tensor_v2") +
         tuple({of, number(offset), shape, strides, "\x89", "}"}) + "R";
}

// The three pickles before the state dict, as torch wrote them.
Bytes preamble() {
  return read_whole_file(old_file).substr(0, 137);
}

// A state dict {"t": value} and one storage "s" of float 0, 1, 2, ...
Bytes archive(const Bytes& value, int64_t elements) {
  Bytes file = preamble() + "\x80\x02}" + text("t") + value + "s." + "\x80\x02]" + text("s") + "a.";
  file.append(reinterpret_cast<const char*>(&elements), 8);
  for (int64_t i = 0; i < elements; ++i) {
    const auto element = float(i);
    file.append(reinterpret_cast<const char*>(&element), 4);
  }
  return file;
}

}  // namespace

TEST_CASE("both layouts of torch.save read as the same weights as safetensors") {
  const Checkpoint expected = read_safetensors(data + "plain/model.safetensors");
  for (const std::string& path : {zip_file, old_file}) {
    CAPTURE(path);
    const Checkpoint got = read_torch_archive(path);
    CHECK(got.source() == path);
    CHECK(got.tensors().size() == expected.tensors().size());
    CHECK(got.tensors()[0].name == "distilbert.embeddings.word_embeddings.weight");
    for (const auto& stored : expected.tensors()) {
      CAPTURE(stored.name);
      check_equal(got.tensor(stored.name), expected.tensor(stored.name));
    }
  }
}

TEST_CASE("tied tensors are read under both names") {
  const Checkpoint got = read_torch_archive(data + "masked_lm_bin_both_tied/pytorch_model.bin");
  const Checkpoint expected = read_safetensors(data + "masked_lm/model.safetensors");
  for (const auto& stored : expected.tensors()) {
    check_equal(got.tensor(stored.name), expected.tensor(stored.name));
  }
  check_equal(got.tensor("vocab_projector.weight"),
              got.tensor("distilbert.embeddings.word_embeddings.weight"));
}

TEST_CASE("offsets and strides of a tensor select its elements of the storage") {
  const TemporaryFolder folder;
  const auto load = [&](const Bytes& value) {
    write_quickly(folder / "p.bin", archive(value, 12));
    return read_torch_archive(folder / "p.bin").tensor("t");
  };
  const Bytes floats = storage("FloatStorage", 12);
  const Tensor plain = load(tensor(floats, 2, sizes({2, 3}), sizes({3, 1})));
  CHECK(plain.shape() == Shape{2, 3});
  CHECK(plain.to_vector<float>() == std::vector<float>{2, 3, 4, 5, 6, 7});
  const Tensor transposed = load(tensor(floats, 1, sizes({3, 2}), sizes({1, 4})));
  CHECK(transposed.to_vector<float>() == std::vector<float>{1, 5, 2, 6, 3, 7});
  // An expanded row, as buffers of positions are stored.
  CHECK(load(tensor(floats, 0, sizes({1, 3}), sizes({0, 1}))).to_vector<float>() ==
        std::vector<float>{0, 1, 2});
  CHECK(load(tensor(floats, 11, sizes({}), sizes({}))).item() == 11);
  CHECK(load(tensor(floats, 12, sizes({0, 5}), sizes({5, 1}))).shape() == Shape{0, 5});
  // A Parameter is its tensor.
  const Bytes parameter = global("torch._utils", "_rebuild_parameter") +
                          tuple({tensor(floats, 3, sizes({1}), sizes({1})), "\x88", "}"}) + "R";
  CHECK(load(parameter).to_vector<float>() == std::vector<float>{3});
}

TEST_CASE("a state dict may be an OrderedDict with attributes") {
  const TemporaryFolder folder;
  const Bytes value = tensor(storage("FloatStorage", 1), 0, sizes({1}), sizes({1}));
  Bytes file = archive(value, 1);
  const Bytes ordered = global("collections", "OrderedDict") + ")R";
  const Bytes attributes = Bytes("}") + text("_metadata") + ordered + "sb";
  file.replace(file.find(Bytes("}") + text("t")), 1, ordered);
  file.insert(file.find("s.\x80\x02]") + 1, attributes);
  write_quickly(folder / "p.bin", file);
  CHECK(read_torch_archive(folder / "p.bin").tensor("t").item() == 0);
}

TEST_CASE("pickles that would do anything but make tensors are refused by name") {
  const Bytes floats = storage("FloatStorage", 1);
  CHECK(complaint(archive(global("posix", "system") + tuple({text("true")}) + "R", 0)) ==
        "byte 160 of its pickle: global \"posix.system\" is not allowed; only tensors and their "
        "containers are read");
  CHECK(complaint(archive(text("builtins") + text("eval") + "\x93", 0)) ==
        "byte 169 of its pickle: global \"builtins.eval\" is not allowed; only tensors and their "
        "containers are read");
  // INST, OBJ, NEWOBJ, EXT1, POP and BINSTRING belong to pickle, not to state dicts.
  for (const char opcode : {'i', 'o', '\x81', '\x82', '0', 'T'}) {
    CHECK(complaint(archive(Bytes{opcode}, 0)) ==
          fmt::format("byte 147 of its pickle: opcode 0x{:02x} is not allowed; only tensors and "
                      "their containers are read",
                      uint8_t(opcode)));
  }
  CHECK(complaint(archive(global("torch", "FloatStorage") + ")R", 0))
            .ends_with("torch.FloatStorage may not be called"));
  CHECK(complaint(archive(tensor(storage("ComplexFloatStorage", 1), 0, sizes({1}), sizes({1})), 1))
            .find("global \"torch.ComplexFloatStorage\" is not allowed") != std::string::npos);
}

TEST_CASE("tensors that reach beyond their storage are refused") {
  const auto message = [](const std::string& elements) {
    return "a tensor of " + elements + " elements does not fit storage \"s\" of 12";
  };
  const auto complaint_about = [](int32_t offset, const std::vector<int32_t>& shape,
                                  const std::vector<int32_t>& strides) {
    const std::string text = complaint(
        archive(tensor(storage("FloatStorage", 12), offset, sizes(shape), sizes(strides)), 12));
    return text.substr(text.find("pickle: ") + 8);
  };
  CHECK(complaint_about(0, {13}, {1}) == message("13"));
  CHECK(complaint_about(12, {1}, {1}) == message("1"));
  CHECK(complaint_about(13, {0}, {1}) == message("0"));
  CHECK(complaint_about(1, {3, 4}, {4, 1}) == message("12"));
  CHECK(complaint_about(0, {1000, 1000}, {0, 0}) == message("1000000"));
  const int32_t big = 1 << 30;
  CHECK(complaint_about(0, {big, big, big}, {0, 0, 0}) == message("far too many"));
  CHECK(complaint_about(0, {big, big}, {big, big}) == message("1152921504606846976"));
  CHECK(complaint_about(-1, {1}, {1}) == "the offset of a tensor is -1, it must not be negative");
  CHECK(complaint_about(11, {2}, {-1}) == "the stride of a tensor is -1, it must not be negative");
  CHECK(complaint_about(0, {2, 2}, {1}) == "a tensor has 2 dimensions and 1 strides");
}

TEST_CASE("storages must have the size that the pickle says") {
  const Bytes value = tensor(storage("FloatStorage", 2), 0, sizes({1}), sizes({1}));
  CHECK(complaint(archive(value, 3)) == "storage \"s\" of 2 elements is stored with 3");
  Bytes file = archive(value, 2);
  CHECK(complaint(file.substr(0, file.size() - 1)) ==
        "storage \"s\" of 2 F32 does not fit the 7 bytes left for it");
  CHECK(complaint(file.substr(0, file.size() - 9)) == "is cut off at storage \"s\"");
  CHECK(complaint(file + "x") == "1 bytes follow its last storage");
  CHECK(complaint(replaced(file, text("s") + "a.", text("r") + "a.")) ==
        "storage \"r\" belongs to no tensor");
  const Bytes zip = read_whole_file(zip_file);
  // BININT1 128, the first storage's number of elements.
  CHECK(complaint(replaced(zip, "K\x80t", "K\x7ft")).find("does not fit storage \"0\" of 127") !=
        std::string::npos);
  CHECK(complaint(replaced(zip, "K\x80t", "K\x81t")) ==
        "storage \"0\" of 129 F32 does not fit the 512 bytes left for it");
  CHECK(complaint(replaced(zip, "FloatStorage", "ByteStorage\n")).find("not allowed") !=
        std::string::npos);
}

TEST_CASE("what is not a state dict of torch.save is refused") {
  CHECK(complaint("") == "is neither a ZIP archive nor a pickle, torch.save writes one of them");
  CHECK(complaint("\x80\x02K\1.") == "is no file of torch.save: its magic number is missing");
  CHECK(complaint("\x80\x02") == "byte 2 of its pickle: it is cut off");
  CHECK(complaint(archive("N", 0)) == "storage \"s\" belongs to no tensor");
  Bytes file = preamble() + "\x80\x02}" + text("t") + "Ns." + "\x80\x02].";
  CHECK(complaint(file) == "\"t\" is not a tensor; it must be a plain state dict");
  CHECK(complaint(preamble() + "\x80\x02N." + "\x80\x02].") ==
        "holds no state dict (names with tensors)");
  CHECK(complaint(replaced(preamble(), "\x88X", "\x89X") + "\x80\x02}.\x80\x02].") ==
        "was written by a big-endian machine, only little-endian is read");
  CHECK(complaint(preamble() + "\x80\x02(.") == "byte 141 of its pickle: its stack is empty");
  CHECK(complaint(preamble() + "\x80\x02h\5.") == "byte 141 of its pickle: memo 5 is empty");
}

TEST_CASE("broken ZIP archives are refused") {
  const Bytes zip = read_whole_file(zip_file);
  CHECK(complaint(zip.substr(0, zip.size() - 30)) ==
        "invalid ZIP archive: its directory is missing, the file may be cut off");
  CHECK(complaint(replaced(zip, "little", "big!!!")) ==
        "has byte order \"big!!!\", only little is read");
  Bytes compressed = zip;
  const size_t first_entry = zip.find("PK\1\2");
  compressed[first_entry + 10] = 8;  // deflated
  CHECK(complaint(compressed) ==
        "ZIP entry \"pytorch_model/data.pkl\" is compressed or encrypted, only stored ones are "
        "read");
  Bytes moved = zip;
  ++moved[first_entry + 42];
  CHECK(complaint(moved) == "ZIP entry \"pytorch_model/data.pkl\" is not where the directory says");
  Bytes longer = zip;
  longer[first_entry + 22] = longer[first_entry + 26] = 1;  // both sizes by 16 MiB
  CHECK(complaint(longer).find("reaches beyond the end of the archive") != std::string::npos);
  Bytes twice = zip;
  const size_t second = zip.rfind("pytorch_model/data/1PK");
  REQUIRE(second != zip.npos);
  twice[second + 19] = '0';
  CHECK(complaint(twice) == "ZIP entry \"pytorch_model/data/0\" is not where the directory says");
  CHECK(complaint(replaced(zip.substr(0, first_entry), "data.pkl", "data.pkk") +
                  replaced(zip.substr(first_entry), "data.pkl", "data.pkk")) ==
        "is a ZIP archive without exactly one data.pkl; torch.save writes one");
}

// Each object is named by others, never copied: neither depth nor sharing may cost memory.
TEST_CASE("deeply nested and highly shared pickles neither crash nor take long") {
  const Bytes nested = Bytes(")") + Bytes(500000, '\x85');  // a tuple in a tuple in a tuple ...
  CHECK(complaint(archive(nested, 0)) == "storage \"s\" belongs to no tensor");
  Bytes doubled = "(]q\1";
  for (int i = 0; i < 60; ++i)
    doubled += "h\1h\1\x86q\1";  // the last one has 2^60 leaves
  doubled += "t";
  CHECK(complaint(archive(doubled, 0)) == "storage \"s\" belongs to no tensor");
  CHECK(complaint(archive(Bytes(2100000, 'N'), 0)).ends_with("it makes more than 2000000 objects"));
  Bytes pairs = "(";
  for (int i = 0; i < 3000; ++i)
    pairs += "NN\x86";
  Bytes copies = Bytes("](") + pairs.substr(1) + "e\x85q\1";
  for (int i = 0; i < 3000; ++i)
    copies += global("collections", "OrderedDict") + "h\1R";
  CHECK(complaint(archive(copies, 0)).ends_with("it makes more than 2000000 objects"));
}

// Seeds are fixed, so a failure repeats.
TEST_CASE("archives with flipped, lost or added bytes load or throw Error") {
  const TemporaryFolder folder;
  const std::string path = folder / "p.bin";
  std::mt19937 random(2);
  for (const std::string& source : {zip_file, old_file}) {
    const Bytes whole = read_whole_file(source);
    // Half of the changes go where the structure is: pickles, and the directory of the ZIP.
    const size_t structure = 4600;
    for (int i = 0; i < 2000; ++i) {
      Bytes bytes = whole;
      for (unsigned n = random() % 3; n < 3; ++n) {
        const size_t at = random() % (n == 0 ? structure : bytes.size());
        bytes[i % 2 ? at : bytes.size() - 1 - at] ^= char(1 + random() % 255);
      }
      if (i % 10 == 0) bytes.resize(random() % (bytes.size() + 8));
      write_quickly(path, bytes);
      try {
        const Checkpoint file = read_torch_archive(path);
        for (const auto& stored : file.tensors())
          file.tensor(stored.name).to_vector<float>();
      } catch (const Error&) {
      }
    }
  }
}
