#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "core/stored_dtype.h"

// Python's pickle format, as far as state dicts written by torch.save need it.
// Opcodes: CPython Lib/pickletools.py.
namespace minim {

// Memory that tensors point into.
struct PickledStorage {
  std::string_view key;  // its place in the archive
  StoredDType dtype = StoredDType::F32;
  uint64_t elements = 0;
};

// A tensor as strides over a storage, in elements. Its last element is known to lie inside, and
// it has no more elements than the storage.
struct PickledTensor {
  size_t storage = 0;  // index into Unpickler::storages()
  uint64_t offset = 0;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> strides;
};

// A Python object. Containers name their items by index into Unpickler::values(), so that nothing
// that handles them has to recurse.
struct PickleValue {
  enum class Kind : uint8_t {
    none,
    boolean,      // number
    integer,      // number
    big_integer,  // text: little-endian two's complement
    real,
    text,  // text
    tuple,
    list,
    dict,     // items: key, value, key, value, ...
    global,   // number: which of the allowed ones
    storage,  // number: index into Unpickler::storages()
    tensor    // number: index into Unpickler::tensors()
  };
  using Ref = uint32_t;

  Kind kind = Kind::none;
  int64_t number = 0;
  std::string_view text;
  std::vector<Ref> items;
};

// Interprets pickles that follow one another in memory that must outlive it.
class Unpickler {
 public:
  using Kind = PickleValue::Kind;
  using Ref = PickleValue::Ref;

  // `path` is for messages.
  Unpickler(std::string path, std::string_view bytes);

  // Reads the next pickle; throws Error naming opcode or global for whatever is not allowed.
  Ref load();
  // Bytes read so far.
  size_t position() const { return at_; }

  const PickleValue& operator[](Ref value) const { return values_[value]; }
  const std::vector<PickledStorage>& storages() const { return storages_; }
  const std::vector<PickledTensor>& tensors() const { return tensors_; }

 private:
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> what, Args&&... args) const;
  std::string_view take(uint64_t count);
  uint64_t take_unsigned(size_t bytes);
  std::string_view take_line();

  void push(PickleValue value);
  void push_text(std::string_view text);
  void push_integer(std::string_view bytes);
  Ref pop();
  std::vector<Ref> pop_to_mark();
  PickleValue& expect(Ref value, Kind kind, std::string_view what);
  uint64_t expect_size(Ref value, std::string_view what);
  std::vector<uint64_t> expect_sizes(Ref value, std::string_view what);

  void step(uint8_t opcode);
  void remember(uint64_t slot);
  void recall(uint64_t slot);
  void push_tuple(std::vector<Ref> items);
  void push_last(size_t count);
  void push_global(std::string_view module, std::string_view name);
  void append(const std::vector<Ref>& items);
  void set_items(const std::vector<Ref>& items);
  void persistent_id();
  void reduce();
  void build();
  void make_ordered_dict(Ref arguments);
  void rebuild_tensor(Ref arguments);
  void rebuild_parameter(Ref arguments);

  std::string path_;
  std::string_view bytes_;
  size_t at_ = 0;
  std::vector<PickleValue> values_;
  std::vector<Ref> stack_;
  std::vector<size_t> marks_;
  std::map<uint64_t, Ref> memo_;
  std::map<std::string_view, size_t> storage_of_key_;
  std::vector<PickledStorage> storages_;
  std::vector<PickledTensor> tensors_;
  size_t copied_ = 0;  // pairs that went from lists into dicts
};

}  // namespace minim
