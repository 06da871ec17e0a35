#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/tensor.h"

// How a rule says what its Options and its State hold. It does so once; from that list an optimizer
// allocates state, predicts its size, writes and reads files, and parses command lines.
namespace minim::optim {

// One option by name.
struct OptionField {
  std::string_view key;
  std::variant<double*, std::optional<double>*, bool*, int64_t*, std::string*> value;

  // As from_text() reads it: doubles exactly, "true", "false", "none" for an empty optional.
  std::string text() const;
  // Throws, naming `rule` and the key, for a text that is no value of the option's type.
  void from_text(std::string_view rule, std::string_view text) const;
};

// Collects the fields of an Options struct: fields("lr", options.lr).
class OptionFields {
 public:
  template <class T>
  void operator()(std::string_view key, T& value) {
    fields_.push_back({key, &value});
  }
  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

 private:
  std::vector<OptionField> fields_;
};

// What a rule may know of a parameter before any memory is allocated.
struct ParameterSpec {
  std::string name;
  Shape shape;
  DType dtype = DType::f32;
};

// The type in which state is kept: f64 for f64 parameters, f32 for all others, never the 16 bits of
// a half-precision parameter.
constexpr DType state_dtype(DType parameter) {
  return parameter == DType::f64 ? DType::f64 : DType::f32;
}

// One member of a State. Tensors have the shape and dtype that they are to be made with.
struct StateField {
  std::string_view key;
  std::variant<Tensor*, int64_t*, double*> value;
  Shape shape = {};
  DType dtype = DType::i64;
};

// Collects the fields of a State struct.
class StateFields {
 public:
  // A tensor of accumulators, zeros at first.
  void operator()(std::string_view key, Tensor& tensor, const Shape& shape, DType dtype) {
    fields_.push_back({key, &tensor, shape, dtype});
  }
  // A number kept beside the tensors: a step counter, a norm.
  void operator()(std::string_view key, int64_t& counter) {
    fields_.push_back({key, &counter, {}, DType::i64});
  }
  void operator()(std::string_view key, double& number) {
    fields_.push_back({key, &number, {}, DType::f64});
  }
  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

 private:
  std::vector<StateField> fields_;
};

}  // namespace minim::optim
