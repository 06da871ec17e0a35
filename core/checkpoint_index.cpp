#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/checkpoint.h"
#include "core/error.h"
#include "core/file.h"
#include "core/printable.h"
#include "core/safetensors.h"
#include "core/torch_archive.h"

namespace minim {
namespace {

using nlohmann::json;

// What an index file says.
struct Index {
  std::map<std::string, std::string> shard_of;  // tensor to file name
  std::optional<uint64_t> total_size;           // bytes of all tensors
};

json parse_index(const std::string& path) {
  const std::string text = read_whole_file(path, 100'000'000);
  check(text.find('\0') == text.npos, "{}: invalid JSON: it holds a NUL character", path);
  std::set<std::string> names;
  std::string twice;
  bool in_map = false;
  // The JSON library keeps the last of two equal keys without a word.
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    check(depth <= 127, "{}: invalid JSON: nested deeper than 127", path);
    if (event == json::parse_event_t::key && depth == 1) in_map = parsed == "weight_map";
    if (event == json::parse_event_t::key && depth == 2 && in_map &&
        !names.insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return true;
  };
  json index;
  try {
    index = json::parse(text, watch);
  } catch (const json::exception&) {
    fail("{}: invalid JSON: it is cut off or not JSON at all", path);
  }
  check(twice.empty(), "{}: tensor {} is listed twice", path, printable(twice));
  return index;
}

// Shards are files of the checkpoint's own folder or below it.
void check_shard_name(const std::string& path, const std::string& shard) {
  const std::string name = printable(shard);
  check(!shard.empty(), "{}: a shard name is empty", path);
  check(shard.find('\0') == shard.npos, "{}: shard name {} holds a NUL character", path, name);
  check(shard.front() != '/', "{}: shard name {} is an absolute path", path, name);
  const std::string parts = "/" + shard + "/";
  check(parts.find("/../") == parts.npos, "{}: shard name {} leaves the model folder", path, name);
}

Index read_index(const std::string& path) {
  const json parsed = parse_index(path);
  check(parsed.is_object(), "{}: must hold a JSON object", path);
  const auto map = parsed.find("weight_map");
  check(map != parsed.end(), "{}: has no weight_map", path);
  check(map->is_object(), "{}: weight_map must map tensor names to file names", path);
  check(!map->empty(), "{}: weight_map is empty", path);
  Index index;
  for (const auto& [tensor, shard] : map->items()) {
    check(shard.is_string(), "{}: weight_map must map names to file names, for {} it has {}", path,
          printable(tensor), shard.type_name());
    check_shard_name(path, shard.get_ref<const std::string&>());
    index.shard_of.emplace(tensor, shard.get<std::string>());
  }
  if (const auto metadata = parsed.find("metadata"); metadata != parsed.end()) {
    const json size = metadata->is_object() ? metadata->value("total_size", json()) : json();
    if (size.is_number_unsigned()) index.total_size = size.get<uint64_t>();
  }
  return index;
}

std::string folder_with_slash(const std::string& path) {
  return path.substr(0, path.rfind('/') + 1);
}

}  // namespace

Checkpoint read_sharded_checkpoint(const std::string& index_path) {
  const Index index = read_index(index_path);
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : index.shard_of)
    shards.insert(shard);

  std::map<std::string, std::string> found_in;  // tensor to the shard it lies in
  std::vector<StoredTensor> tensors;
  std::vector<std::string> unlisted;
  Metadata metadata;
  for (const std::string& shard : shards) {
    const std::string path = folder_with_slash(index_path) + shard;
    check(std::filesystem::exists(path), "{}: lists shard {}, which does not exist", index_path,
          shard);
    const Checkpoint part =
        shard.ends_with(".bin") ? read_torch_archive(path) : read_safetensors(path);
    if (metadata.empty()) metadata = part.metadata();
    for (const StoredTensor& stored : part.tensors()) {
      const auto [other, is_new] = found_in.emplace(stored.name, shard);
      check(is_new, "{}: tensor {} is in two shards, {} and {}", index_path, printable(stored.name),
            other->second, shard);
      if (index.shard_of.contains(stored.name)) {
        tensors.push_back(stored);
      } else {
        unlisted.push_back(stored.name);
      }
    }
  }
  uint64_t bytes = 0;
  for (const auto& [tensor, shard] : index.shard_of) {
    const auto found = found_in.find(tensor);
    check(found != found_in.end(), "{}: says tensor {} is in {}, it is not", index_path,
          printable(tensor), shard);
    check(found->second == shard, "{}: says tensor {} is in {}, it is in {}", index_path,
          printable(tensor), shard, found->second);
  }
  for (const StoredTensor& stored : tensors)
    bytes += stored.bytes;
  Checkpoint checkpoint(index_path, std::move(tensors), std::move(metadata));
  checkpoint.unlisted_ = std::move(unlisted);
  if (index.total_size && *index.total_size != bytes) {
    checkpoint.warnings_.push_back(fmt::format("{}: total_size says {} bytes, the tensors have {}",
                                               index_path, *index.total_size, bytes));
  }
  return checkpoint;
}

}  // namespace minim
