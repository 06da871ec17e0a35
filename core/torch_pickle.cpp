#include "core/torch_pickle.h"

#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/printable.h"

namespace minim {
namespace {

using Kind = PickleValue::Kind;

// A state dict of a hundred thousand tensors makes fewer objects.
constexpr size_t most_values = 2'000'000;
constexpr size_t most_dimensions = 64;

enum class Callable : uint8_t { ordered_dict, rebuild_tensor, rebuild_parameter, storage_class };

// All that a pickle may name. Storage classes stand for the dtype of their elements.
struct Global {
  std::string_view module;
  std::string_view name;
  Callable callable;
  StoredDType dtype = StoredDType::F32;
};
constexpr std::array<Global, 13> globals = {{
    {"collections", "OrderedDict", Callable::ordered_dict},
    {"torch._utils", "_rebuild_tensor_v2", Callable::rebuild_tensor},
    {"torch._utils", "_rebuild_parameter", Callable::rebuild_parameter},
    {"torch", "FloatStorage", Callable::storage_class, StoredDType::F32},
    {"torch", "HalfStorage", Callable::storage_class, StoredDType::F16},
    {"torch", "BFloat16Storage", Callable::storage_class, StoredDType::BF16},
    {"torch", "DoubleStorage", Callable::storage_class, StoredDType::F64},
    {"torch", "LongStorage", Callable::storage_class, StoredDType::I64},
    {"torch", "IntStorage", Callable::storage_class, StoredDType::I32},
    {"torch", "ShortStorage", Callable::storage_class, StoredDType::I16},
    {"torch", "CharStorage", Callable::storage_class, StoredDType::I8},
    {"torch", "ByteStorage", Callable::storage_class, StoredDType::U8},
    {"torch", "BoolStorage", Callable::storage_class, StoredDType::BOOL},
}};

}  // namespace

Unpickler::Unpickler(std::string path, std::string_view bytes)
    : path_(std::move(path)), bytes_(bytes) {}

template <class... Args>
void Unpickler::refuse(fmt::format_string<Args...> what, Args&&... args) const {
  fail("{}: byte {} of its pickle: {}", path_, at_, fmt::format(what, std::forward<Args>(args)...));
}

std::string_view Unpickler::take(uint64_t count) {
  if (count > bytes_.size() - at_) refuse("it is cut off");
  at_ += count;
  return bytes_.substr(at_ - count, count);
}

uint64_t Unpickler::take_unsigned(size_t bytes) {
  uint64_t number = 0;
  std::memcpy(&number, take(bytes).data(), bytes);
  return number;
}

std::string_view Unpickler::take_line() {
  const size_t end = bytes_.find('\n', at_);
  if (end == bytes_.npos) refuse("it is cut off");
  const std::string_view line = take(end - at_);
  ++at_;
  return line;
}

void Unpickler::push(PickleValue value) {
  if (values_.size() == most_values) refuse("it makes more than {} objects", most_values);
  stack_.push_back(Ref(values_.size()));
  values_.push_back(std::move(value));
}

void Unpickler::push_text(std::string_view text) {
  push({.kind = Kind::text, .text = text, .items = {}});
}

// Little-endian two's complement of any length.
void Unpickler::push_integer(std::string_view bytes) {
  if (bytes.size() > 8) return push({.kind = Kind::big_integer, .text = bytes, .items = {}});
  uint64_t number = !bytes.empty() && int8_t(bytes.back()) < 0 ? ~uint64_t(0) : 0;
  if (!bytes.empty()) std::memcpy(&number, bytes.data(), bytes.size());
  push({.kind = Kind::integer, .number = int64_t(number), .text = {}, .items = {}});
}

Unpickler::Ref Unpickler::pop() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) refuse("its stack is empty");
  const Ref value = stack_.back();
  stack_.pop_back();
  return value;
}

std::vector<Unpickler::Ref> Unpickler::pop_to_mark() {
  if (marks_.empty()) refuse("a mark is missing");
  const auto begin = stack_.begin() + std::ptrdiff_t(marks_.back());
  std::vector<Ref> items(begin, stack_.end());
  stack_.erase(begin, stack_.end());
  marks_.pop_back();
  return items;
}

PickleValue& Unpickler::expect(Ref value, Kind kind, std::string_view what) {
  if (values_[value].kind != kind) refuse("{} is of the wrong type", what);
  return values_[value];
}

uint64_t Unpickler::expect_size(Ref value, std::string_view what) {
  const int64_t number = expect(value, Kind::integer, what).number;
  if (number < 0) refuse("{} is {}, it must not be negative", what, number);
  return uint64_t(number);
}

std::vector<uint64_t> Unpickler::expect_sizes(Ref value, std::string_view what) {
  const std::vector<Ref>& items = expect(value, Kind::tuple, what).items;
  if (items.size() > most_dimensions) refuse("{} has more than {} items", what, most_dimensions);
  std::vector<uint64_t> sizes;
  for (const Ref item : items)
    sizes.push_back(expect_size(item, what));
  return sizes;
}

Unpickler::Ref Unpickler::load() {
  stack_.clear();
  marks_.clear();
  memo_.clear();
  constexpr uint8_t stop = '.';
  for (auto opcode = uint8_t(take_unsigned(1)); opcode != stop;
       opcode = uint8_t(take_unsigned(1))) {
    step(opcode);
  }
  const Ref result = pop();
  if (!stack_.empty() || !marks_.empty()) refuse("objects are left over at its end");
  return result;
}

void Unpickler::step(uint8_t opcode) {
  switch (opcode) {
    case 0x80:  // PROTO
      if (const uint64_t version = take_unsigned(1); version > 5) {
        refuse("protocol {} is unknown", version);
      }
      return;
    case 0x95:  // FRAME
      take_unsigned(8);
      return;
    case '(':  // MARK
      return marks_.push_back(stack_.size());
    case 'N':  // NONE
      return push({});
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      return push({.kind = Kind::boolean, .number = opcode == 0x88, .text = {}, .items = {}});
    case 'K':  // BININT1
    case 'M':  // BININT2
      return push({.kind = Kind::integer,
                   .number = int64_t(take_unsigned(opcode == 'K' ? 1 : 2)),
                   .text = {},
                   .items = {}});
    case 'J':  // BININT
      return push_integer(take(4));
    case 0x8a:  // LONG1
      return push_integer(take(take_unsigned(1)));
    case 'G':  // BINFLOAT: nothing reads its value
      take(8);
      return push({.kind = Kind::real, .text = {}, .items = {}});
    case 0x8c:  // SHORT_BINUNICODE
      return push_text(take(take_unsigned(1)));
    case 'X':  // BINUNICODE
      return push_text(take(take_unsigned(4)));
    case ')':  // EMPTY_TUPLE
      return push_tuple({});
    case 't':  // TUPLE
      return push_tuple(pop_to_mark());
    case 0x85:  // TUPLE1
    case 0x86:  // TUPLE2
    case 0x87:  // TUPLE3
      return push_last(opcode - 0x84u);
    case ']':  // EMPTY_LIST
      return push({.kind = Kind::list, .text = {}, .items = {}});
    case '}':  // EMPTY_DICT
      return push({.kind = Kind::dict, .text = {}, .items = {}});
    case 'a':  // APPEND
      return append({pop()});
    case 'e':  // APPENDS
      return append(pop_to_mark());
    case 's': {  // SETITEM
      const Ref value = pop();
      return set_items({pop(), value});
    }
    case 'u':  // SETITEMS
      return set_items(pop_to_mark());
    case 'q':  // BINPUT
      return remember(take_unsigned(1));
    case 'r':  // LONG_BINPUT
      return remember(take_unsigned(4));
    case 0x94:  // MEMOIZE
      return remember(memo_.size());
    case 'h':  // BINGET
      return recall(take_unsigned(1));
    case 'j':  // LONG_BINGET
      return recall(take_unsigned(4));
    case 'c': {  // GLOBAL
      const std::string_view module = take_line();
      return push_global(module, take_line());
    }
    case 0x93: {  // STACK_GLOBAL
      const std::string_view name = expect(pop(), Kind::text, "the name of a global").text;
      return push_global(expect(pop(), Kind::text, "the module of a global").text, name);
    }
    case 'Q':  // BINPERSID
      return persistent_id();
    case 'R':  // REDUCE
      return reduce();
    case 'b':  // BUILD
      return build();
    default:
      refuse("opcode 0x{:02x} is not allowed; only tensors and their containers are read", opcode);
  }
}

void Unpickler::remember(uint64_t slot) {
  const Ref top = pop();
  stack_.push_back(top);
  memo_[slot] = top;
}

void Unpickler::recall(uint64_t slot) {
  const auto found = memo_.find(slot);
  if (found == memo_.end()) refuse("memo {} is empty", slot);
  stack_.push_back(found->second);
}

void Unpickler::push_tuple(std::vector<Ref> items) {
  push({.kind = Kind::tuple, .text = {}, .items = std::move(items)});
}

void Unpickler::push_last(size_t count) {
  std::vector<Ref> items(count);
  while (count > 0)
    items[--count] = pop();
  push_tuple(std::move(items));
}

void Unpickler::push_global(std::string_view module, std::string_view name) {
  for (size_t i = 0; i < globals.size(); ++i) {
    if (globals[i].module == module && globals[i].name == name) {
      return push({.kind = Kind::global, .number = int64_t(i), .text = {}, .items = {}});
    }
  }
  refuse("global {} is not allowed; only tensors and their containers are read",
         printable(fmt::format("{}.{}", module, name)));
}

void Unpickler::append(const std::vector<Ref>& items) {
  const Ref list = pop();
  stack_.push_back(list);
  std::vector<Ref>& all = expect(list, Kind::list, "what is appended to").items;
  all.insert(all.end(), items.begin(), items.end());
}

void Unpickler::set_items(const std::vector<Ref>& items) {
  const Ref dict = pop();
  stack_.push_back(dict);
  std::vector<Ref>& all = expect(dict, Kind::dict, "what keys are set in").items;
  if (items.size() % 2 != 0) refuse("a key has no value");
  all.insert(all.end(), items.begin(), items.end());
}

// ("storage", storage class, key, device, number of elements[, view]); the device is where the
// tensor was once, of no interest here.
void Unpickler::persistent_id() {
  const std::vector<Ref> id = expect(pop(), Kind::tuple, "a persistent id").items;
  if (id.size() != 5 && id.size() != 6) refuse("a persistent id has {} parts", id.size());
  if (expect(id[0], Kind::text, "the kind of a persistent id").text != "storage") {
    refuse("a persistent id names no storage");
  }
  const Global& type = globals[size_t(expect(id[1], Kind::global, "a storage class").number)];
  if (type.callable != Callable::storage_class) refuse("{} is no storage class", type.name);
  const std::string_view key = expect(id[2], Kind::text, "a storage key").text;
  const uint64_t elements = expect_size(id[4], "the size of a storage");
  if (id.size() == 6) expect(id[5], Kind::none, "the view of a storage (which must be None)");
  const auto [found, is_new] = storage_of_key_.emplace(key, storages_.size());
  if (is_new) storages_.push_back({key, type.dtype, elements});
  const PickledStorage& storage = storages_[found->second];
  if (storage.dtype != type.dtype || storage.elements != elements) {
    refuse("storage {} is described in two ways", printable(key));
  }
  push({.kind = Kind::storage, .number = int64_t(found->second), .text = {}, .items = {}});
}

void Unpickler::reduce() {
  const Ref arguments = pop();
  expect(arguments, Kind::tuple, "what a global is called with");
  const Global& global = globals[size_t(expect(pop(), Kind::global, "what is called").number)];
  switch (global.callable) {
    case Callable::ordered_dict:
      return make_ordered_dict(arguments);
    case Callable::rebuild_tensor:
      return rebuild_tensor(arguments);
    case Callable::rebuild_parameter:
      return rebuild_parameter(arguments);
    case Callable::storage_class:
      refuse("{}.{} may not be called", global.module, global.name);
  }
}

// OrderedDict() or OrderedDict([[key, value], ...]).
void Unpickler::make_ordered_dict(Ref arguments) {
  const std::vector<Ref> given = values_[arguments].items;
  if (given.size() > 1) refuse("OrderedDict is called with {} arguments", given.size());
  PickleValue dict{.kind = Kind::dict, .text = {}, .items = {}};
  if (given.size() == 1) {
    for (const Ref pair : expect(given[0], Kind::list, "the argument of OrderedDict").items) {
      const PickleValue& item = values_[pair];
      const bool is_pair =
          (item.kind == Kind::list || item.kind == Kind::tuple) && item.items.size() == 2;
      if (!is_pair) refuse("OrderedDict is called with items that are not pairs");
      dict.items.insert(dict.items.end(), item.items.begin(), item.items.end());
      if (++copied_ > most_values) refuse("it makes more than {} objects", most_values);
    }
  }
  push(std::move(dict));
}

// Attributes of a dict (`_metadata`: versions of modules) carry no weights.
void Unpickler::build() {
  expect(pop(), Kind::dict, "the attributes of an object");
  const Ref object = pop();
  expect(object, Kind::dict, "an object with attributes");
  stack_.push_back(object);
}

// (storage, offset, size, stride, requires_grad, hooks[, metadata])
void Unpickler::rebuild_tensor(Ref arguments) {
  const std::vector<Ref> given = values_[arguments].items;
  if (given.size() != 6 && given.size() != 7) {
    refuse("_rebuild_tensor_v2 is called with {} arguments", given.size());
  }
  PickledTensor tensor;
  tensor.storage = size_t(expect(given[0], Kind::storage, "the storage of a tensor").number);
  tensor.offset = expect_size(given[1], "the offset of a tensor");
  tensor.shape = expect_sizes(given[2], "the size of a tensor");
  tensor.strides = expect_sizes(given[3], "the stride of a tensor");
  if (tensor.strides.size() != tensor.shape.size()) {
    refuse("a tensor has {} dimensions and {} strides", tensor.shape.size(), tensor.strides.size());
  }
  const PickledStorage& storage = storages_[tensor.storage];
  uint64_t last = tensor.offset;
  uint64_t elements = 1;
  bool overflow = false;
  for (const uint64_t d : tensor.shape)
    elements = d == 0 ? 0 : elements;
  for (size_t i = 0; i < tensor.shape.size() && elements != 0; ++i) {
    uint64_t distance = 0;
    overflow |= __builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &distance);
    overflow |= __builtin_add_overflow(last, distance, &last);
    overflow |= __builtin_mul_overflow(elements, tensor.shape[i], &elements);
  }
  const bool inside =
      !overflow && (elements == 0 ? tensor.offset <= storage.elements : last < storage.elements);
  // More elements than the storage has would let a small file ask for any amount of memory.
  if (!inside || elements > storage.elements) {
    refuse("a tensor of {} elements does not fit storage {} of {}",
           overflow ? "far too many" : std::to_string(elements), printable(storage.key),
           storage.elements);
  }
  push({.kind = Kind::tensor, .number = int64_t(tensors_.size()), .text = {}, .items = {}});
  tensors_.push_back(std::move(tensor));
}

// (tensor, requires_grad, hooks): the tensor itself.
void Unpickler::rebuild_parameter(Ref arguments) {
  const std::vector<Ref>& given = values_[arguments].items;
  if (given.size() != 3) refuse("_rebuild_parameter is called with {} arguments", given.size());
  expect(given[0], Kind::tensor, "the data of a parameter");
  stack_.push_back(given[0]);
}

}  // namespace minim
