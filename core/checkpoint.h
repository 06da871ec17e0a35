#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/safetensors_header.h"
#include "core/stored_dtype.h"
#include "core/tensor.h"

namespace minim {

// What a weight file says about one tensor, checked against the size of the file.
struct StoredTensor {
  std::string name;
  StoredDType dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> strides;  // in elements; empty where the tensor is contiguous
  uint64_t bytes;                 // of its elements
  std::byte* data;                // first element, any alignment
  std::shared_ptr<MappedFile> file;
};

// The tensors of a weight file, or of the shards of a checkpoint. Opening one reads the headers
// alone; a tensor's bytes are read from the disk when it is used.
class Checkpoint {
 public:
  // Names must be distinct. `source` is the path for messages.
  Checkpoint(std::string source, std::vector<StoredTensor> tensors, Metadata metadata);

  // Path of the file, or of the index of several.
  const std::string& source() const { return source_; }
  // All tensors in the order of the file, also those of dtypes that cannot be loaded.
  const std::vector<StoredTensor>& tensors() const& { return tensors_; }
  std::vector<StoredTensor> tensors() && { return std::move(tensors_); }
  const Metadata& metadata() const { return metadata_; }
  // The tensor of that name, null if there is none.
  const StoredTensor* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }

  // The tensor's values, contiguous. Where the file's layout allows it the memory is the mapped
  // file's own and alive as long as the tensor: writing to it never changes the file, but is seen
  // by whoever takes the same tensor again. Throws Error naming file and tensor if there is none
  // of that name, minim does not have its dtype, or its rank exceeds Shape::max_rank.
  Tensor tensor(std::string_view name) const;
  // All of them with their names, in the order of the file.
  NamedTensors named_tensors() const;

  // Sentences about what is odd yet harmless.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // Names of tensors that lie in a shard although the index does not list them; not in tensors().
  const std::vector<std::string>& unlisted() const { return unlisted_; }

 private:
  friend Checkpoint read_sharded_checkpoint(const std::string& index_path);

  std::string source_;
  std::vector<StoredTensor> tensors_;
  std::vector<uint32_t> by_name_;  // indices into tensors_, sorted by name
  Metadata metadata_;
  std::vector<std::string> warnings_;
  std::vector<std::string> unlisted_;
};

// Opens the weights of a model folder: the first that exists of model.safetensors,
// model.safetensors.index.json, pytorch_model.bin and pytorch_model.bin.index.json.
Checkpoint read_checkpoint(const std::string& folder);

// Opens all shards that an index file (`*.safetensors.index.json`, `*.bin.index.json`) lists. Each
// tensor must lie in the shard the index says and in no other; shards must lie in its folder.
Checkpoint read_sharded_checkpoint(const std::string& index_path);

}  // namespace minim
