#include "core/safetensors.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/printable.h"
#include "core/safetensors_header.h"

namespace minim {

Checkpoint read_safetensors(const std::string& path) {
  // Copy-on-write: training may update the weights where they lie.
  auto file = std::make_shared<MappedFile>(path, MappedFile::Access::copy_on_write);
  SafetensorsHeader header = parse_safetensors_header(path, file->text());
  std::vector<StoredTensor> tensors;
  tensors.reserve(header.entries.size());
  for (SafetensorsEntry& entry : header.entries) {
    tensors.push_back({.name = std::move(entry.name),
                       .dtype = entry.dtype,
                       .shape = std::move(entry.shape),
                       .strides = {},
                       .bytes = entry.end - entry.begin,
                       .data = file->data() + header.data_begin + entry.begin,
                       .file = file});
  }
  return Checkpoint(path, std::move(tensors), std::move(header.metadata));
}

void write_safetensors(const std::string& path, const NamedTensors& tensors,
                       const Metadata& metadata) {
  std::map<std::string_view, const Tensor*> by_name;
  std::vector<SafetensorsEntry> entries;
  for (const NamedTensor& named : tensors) {
    const std::string& name = named.name;
    check(named.tensor.defined(), "{}: tensor {} is undefined", path, printable(name));
    check(name != "__metadata__", "{}: no tensor can have the name {}", path, printable(name));
    check(first_invalid_utf8(name) == name.size(), "{}: tensor name {} is not UTF-8", path,
          printable(name));
    check(by_name.emplace(name, &named.tensor).second, "{}: tensor {} is given twice", path,
          printable(name));
    const Shape& shape = named.tensor.shape();
    entries.push_back({.name = name,
                       .dtype = stored_dtype(named.tensor.dtype()),
                       .shape = {shape.begin(), shape.end()}});
  }
  for (const auto& [key, text] : metadata) {
    const bool utf8 =
        first_invalid_utf8(key) == key.size() && first_invalid_utf8(text) == text.size();
    check(utf8, "{}: metadata {} is not UTF-8", path, printable(key));
  }
  const std::string header = build_safetensors_header(entries, metadata);
  AtomicFile file(path);
  file.write(header);
  for (const SafetensorsEntry& entry : entries) {
    // One tensor at a time, so that copies of strided ones never add up.
    const Tensor tensor = by_name.at(entry.name)->contiguous().to(Device::cpu());
    file.write(tensor.raw(), size_t(tensor.bytes()));
  }
  file.commit();
}

}  // namespace minim
