#include "core/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "core/safetensors.h"
#include "core/torch_archive.h"

namespace minim {
namespace {

// The shape as a Shape. Tensors without elements may name extents that no product can hold.
Shape loaded_shape(const StoredTensor& stored, const std::string& path) {
  check(stored.shape.size() <= size_t(Shape::max_rank),
        "{}: tensor {} has {} dimensions, at most {} can be loaded", path, printable(stored.name),
        stored.shape.size(), Shape::max_rank);
  Shape shape;
  int64_t product = 1;
  for (const uint64_t d : stored.shape) {
    const bool fits = d <= uint64_t(INT64_MAX) &&
                      !__builtin_mul_overflow(product, std::max<int64_t>(int64_t(d), 1), &product);
    check(fits, "{}: tensor {} of shape {} is too large to be loaded", path, printable(stored.name),
          shape_text(stored.shape));
    shape.push_back(int64_t(d));
  }
  return shape;
}

// Copies elements one by one from where the strides say, last dimension fastest.
void copy_strided(const StoredTensor& stored, std::byte* to, size_t element) {
  const size_t rank = stored.shape.size();
  std::vector<uint64_t> index(rank, 0);
  for (uint64_t left = stored.bytes / element; left > 0; --left) {
    uint64_t offset = 0;
    for (size_t i = 0; i < rank; ++i)
      offset += index[i] * stored.strides[i];
    std::memcpy(to, stored.data + offset * element, element);
    to += element;
    for (size_t i = rank; i-- > 0;) {
      if (++index[i] < stored.shape[i]) break;
      index[i] = 0;
    }
  }
}

}  // namespace

Checkpoint::Checkpoint(std::string source, std::vector<StoredTensor> tensors, Metadata metadata)
    : source_(std::move(source)),
      tensors_(std::move(tensors)),
      by_name_(tensors_.size()),
      metadata_(std::move(metadata)) {
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::ranges::sort(by_name_, {}, [&](uint32_t i) -> std::string_view { return tensors_[i].name; });
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto name_at = [&](uint32_t i) -> std::string_view { return tensors_[i].name; };
  const auto found = std::ranges::lower_bound(by_name_, name, {}, name_at);
  if (found == by_name_.end() || name_at(*found) != name) return nullptr;
  return &tensors_[*found];
}

Tensor Checkpoint::tensor(std::string_view name) const {
  const StoredTensor* stored = find(name);
  check(stored != nullptr, "{}: has no tensor {}", source_, printable(name));
  const std::string& path = stored->file->path();
  const std::optional<DType> dtype = loaded_dtype(stored->dtype);
  check(dtype.has_value(),
        "{}: tensor {} has dtype {}; F32, F64, F16, BF16, I64, I32, U8 and BOOL can be loaded",
        path, printable(name), name_of(stored->dtype));
  const Shape shape = loaded_shape(*stored, path);
  if (stored->bytes == 0) return Tensor::empty(shape, *dtype);

  const auto element = size_t(size_of(*dtype));
  const bool aligned = reinterpret_cast<uintptr_t>(stored->data) % element == 0;
  if (aligned && stored->strides.empty() && *dtype != DType::boolean) {
    return Tensor::borrow(stored->data, shape, *dtype, stored->file);
  }
  Tensor copy = Tensor::empty(shape, *dtype);
  auto* to = static_cast<std::byte*>(copy.raw());
  if (stored->strides.empty()) {
    std::memcpy(to, stored->data, stored->bytes);
  } else {
    copy_strided(*stored, to, element);
  }
  if (*dtype == DType::boolean) {
    // Files may hold any byte, a C++ bool only 0 and 1.
    std::transform(to, to + stored->bytes, to,
                   [](std::byte b) { return std::byte(b != std::byte(0)); });
  }
  return copy;
}

NamedTensors Checkpoint::named_tensors() const {
  NamedTensors all;
  for (const StoredTensor& stored : tensors_)
    all.push_back({stored.name, tensor(stored.name)});
  return all;
}

Checkpoint read_checkpoint(const std::string& folder) {
  const auto place = [&](std::string_view name) { return fmt::format("{}/{}", folder, name); };
  const auto present = [&](std::string_view name) {
    std::error_code ignored;
    return std::filesystem::exists(place(name), ignored);
  };
  if (present("model.safetensors")) return read_safetensors(place("model.safetensors"));
  if (present("model.safetensors.index.json")) {
    return read_sharded_checkpoint(place("model.safetensors.index.json"));
  }
  if (present("pytorch_model.bin")) return read_torch_archive(place("pytorch_model.bin"));
  if (present("pytorch_model.bin.index.json")) {
    return read_sharded_checkpoint(place("pytorch_model.bin.index.json"));
  }
  std::error_code ignored;
  check(std::filesystem::is_directory(folder, ignored), "{}: there is no such folder", folder);
  fail(
      "{}: has no weights: looked for model.safetensors, model.safetensors.index.json, "
      "pytorch_model.bin and pytorch_model.bin.index.json",
      folder);
}

}  // namespace minim
