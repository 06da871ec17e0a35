#include "core/torch_archive.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/printable.h"
#include "core/torch_pickle.h"
#include "core/zip_directory.h"

namespace minim {
namespace {

using Kind = PickleValue::Kind;
using Ref = PickleValue::Ref;

uint64_t element_bytes(const PickledStorage& storage) {
  return bits_of(storage.dtype) / 8;
}

// A storage's bytes, checked against the room it has; pickled sizes may overflow.
uint64_t storage_bytes(const std::string& path, const PickledStorage& storage, uint64_t room) {
  uint64_t bytes = 0;
  const bool overflow = __builtin_mul_overflow(storage.elements, element_bytes(storage), &bytes);
  check(!overflow && bytes <= room, "{}: storage {} of {} {} does not fit the {} bytes left for it",
        path, printable(storage.key), storage.elements, name_of(storage.dtype), room);
  return bytes;
}

// The tensors of a state dict. `begins` holds the place of each storage in the file.
Checkpoint make_checkpoint(const std::shared_ptr<MappedFile>& file, const Unpickler& pickle,
                           Ref root, const std::vector<uint64_t>& begins) {
  const std::string& path = file->path();
  const PickleValue& dict = pickle[root];
  check(dict.kind == Kind::dict, "{}: holds no state dict (names with tensors)", path);
  std::vector<StoredTensor> tensors;
  for (size_t i = 0; i < dict.items.size(); i += 2) {
    const PickleValue& key = pickle[dict.items[i]];
    const PickleValue& value = pickle[dict.items[i + 1]];
    check(key.kind == Kind::text && first_invalid_utf8(key.text) == key.text.size(),
          "{}: key {} of its state dict is not a text", path, i / 2);
    check(value.kind == Kind::tensor, "{}: {} is not a tensor; it must be a plain state dict", path,
          printable(key.text));
    const PickledTensor& pickled = pickle.tensors()[size_t(value.number)];
    const PickledStorage& storage = pickle.storages()[pickled.storage];
    StoredTensor stored{
        .name = std::string(key.text),
        .dtype = storage.dtype,
        .shape = pickled.shape,
        .strides = {},
        .bytes = element_bytes(storage),
        .data = file->data() + begins[pickled.storage] + pickled.offset * element_bytes(storage),
        .file = file};
    for (const uint64_t d : stored.shape)
      stored.bytes = d == 0 ? 0 : stored.bytes;
    bool contiguous = true;
    for (size_t d = stored.shape.size(); d-- > 0 && stored.bytes != 0;) {
      const uint64_t expected = stored.bytes / element_bytes(storage);
      contiguous &= stored.shape[d] == 1 || pickled.strides[d] == expected;
      stored.bytes *= stored.shape[d];
    }
    if (!contiguous) stored.strides = pickled.strides;
    tensors.push_back(std::move(stored));
  }
  std::vector<std::string_view> names;
  for (const StoredTensor& stored : tensors)
    names.push_back(stored.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  check(twice == names.end(), "{}: tensor {} occurs twice", path,
        twice == names.end() ? "" : printable(*twice));
  return Checkpoint(path, std::move(tensors), {});
}

// ROOT/data.pkl, ROOT/data/KEY for each storage, maybe ROOT/byteorder.
Checkpoint read_zip_layout(const std::shared_ptr<MappedFile>& file) {
  const std::string& path = file->path();
  const std::string_view text = file->text();
  const std::map<std::string_view, ZipEntry> entries = read_zip_directory(path, text);
  constexpr std::string_view pickle_name = "/data.pkl";
  const auto is_pickle = [&](const auto& entry) { return entry.first.ends_with(pickle_name); };
  const auto found = std::ranges::find_if(entries, is_pickle);
  check(std::ranges::count_if(entries, is_pickle) == 1,
        "{}: is a ZIP archive without exactly one data.pkl; torch.save writes one", path);
  const std::string root(found->first.substr(0, found->first.size() - pickle_name.size()));
  if (const auto order = entries.find(root + "/byteorder"); order != entries.end()) {
    const std::string_view name = text.substr(order->second.begin, order->second.size);
    check(name == "little", "{}: has byte order {}, only little is read", path, printable(name));
  }
  Unpickler pickle(path, text.substr(found->second.begin, found->second.size));
  const Ref state_dict = pickle.load();
  std::vector<uint64_t> begins;
  for (const PickledStorage& storage : pickle.storages()) {
    const auto entry = entries.find(fmt::format("{}/data/{}", root, storage.key));
    check(entry != entries.end(), "{}: storage {} is missing", path, printable(storage.key));
    const uint64_t bytes = storage_bytes(path, storage, entry->second.size);
    check(bytes == entry->second.size, "{}: storage {} of {} {} takes {} bytes, it has {}", path,
          printable(storage.key), storage.elements, name_of(storage.dtype), bytes,
          entry->second.size);
    begins.push_back(entry->second.begin);
  }
  return make_checkpoint(file, pickle, state_dict, begins);
}

// 0x1950a86a20f9469cfc6c, the number that files of torch before 1.6 begin with.
constexpr std::string_view magic_number = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

// Pickles of magic number, protocol, system, state dict and storage keys; then in the order of
// the keys each storage: number of elements (64 bits), bytes.
Checkpoint read_pickle_layout(const std::shared_ptr<MappedFile>& file) {
  const std::string& path = file->path();
  const std::string_view text = file->text();
  Unpickler pickle(path, text);
  const PickleValue& magic = pickle[pickle.load()];
  check(magic.kind == Kind::big_integer && magic.text == magic_number,
        "{}: is no file of torch.save: its magic number is missing", path);
  const PickleValue& protocol = pickle[pickle.load()];
  check(protocol.kind == Kind::integer && protocol.number == 1001,
        "{}: has protocol {} of torch.save, only 1001 is read", path, protocol.number);
  const PickleValue& system = pickle[pickle.load()];
  check(system.kind == Kind::dict, "{}: does not describe the system that wrote it", path);
  for (size_t i = 0; i < system.items.size(); i += 2) {
    if (pickle[system.items[i]].text != "little_endian") continue;
    const PickleValue& little = pickle[system.items[i + 1]];
    check(little.kind == Kind::boolean && little.number == 1,
          "{}: was written by a big-endian machine, only little-endian is read", path);
  }
  const Ref state_dict = pickle.load();
  const Ref keys = pickle.load();
  check(pickle[keys].kind == Kind::list, "{}: does not list its storages", path);

  const std::vector<PickledStorage>& storages = pickle.storages();
  std::map<std::string_view, size_t> storage_of_key;
  for (size_t i = 0; i < storages.size(); ++i)
    storage_of_key.emplace(storages[i].key, i);
  constexpr uint64_t missing = UINT64_MAX;
  std::vector<uint64_t> begins(storages.size(), missing);
  uint64_t at = pickle.position();
  for (const Ref ref : pickle[keys].items) {
    const PickleValue& key = pickle[ref];
    const auto found = storage_of_key.find(key.text);
    check(key.kind == Kind::text && found != storage_of_key.end(),
          "{}: storage {} belongs to no tensor", path, printable(key.text));
    const PickledStorage& storage = storages[found->second];
    check(begins[found->second] == missing, "{}: storage {} occurs twice", path,
          printable(key.text));
    check(text.size() - at >= 8, "{}: is cut off at storage {}", path, printable(key.text));
    uint64_t elements = 0;
    std::memcpy(&elements, text.data() + at, 8);
    at += 8;
    check(elements == storage.elements, "{}: storage {} of {} elements is stored with {}", path,
          printable(key.text), storage.elements, elements);
    begins[found->second] = at;
    at += storage_bytes(path, storage, text.size() - at);
  }
  const auto absent = std::ranges::find(begins, missing);
  check(absent == begins.end(), "{}: storage {} is missing", path,
        absent == begins.end() ? "" : printable(storages[size_t(absent - begins.begin())].key));
  check(at == text.size(), "{}: {} bytes follow its last storage", path, text.size() - at);
  return make_checkpoint(file, pickle, state_dict, begins);
}

}  // namespace

Checkpoint read_torch_archive(const std::string& path) {
  const auto file = std::make_shared<MappedFile>(path, MappedFile::Access::copy_on_write);
  const std::string_view text = file->text();
  if (text.starts_with("PK\3\4")) return read_zip_layout(file);
  check(text.starts_with("\x80\x02"),
        "{}: is neither a ZIP archive nor a pickle, torch.save writes one of them", path);
  return read_pickle_layout(file);
}

}  // namespace minim
