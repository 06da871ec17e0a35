#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "optim/fields.h"

namespace minim::optim {

// What an optimizer keeps in memory, known from shapes before anything is allocated.
struct StateSize {
  // One tensor of the state.
  struct Entry {
    std::string parameter;  // full name; empty for what all parameters share
    std::string key;        // "exp_avg"
    Shape shape;
    DType dtype;
    int64_t elements;
    int64_t bytes;
  };

  std::vector<Entry> entries;
  int64_t elements = 0;  // in all tensors
  int64_t bytes = 0;     // of all tensors: what memory::current(optimizer_state) will say
  int64_t numbers = 0;   // step counters and other single numbers, which lie outside the tensors

  // Adds the tensors and numbers of one parameter.
  void add(const std::string& parameter, const StateFields& fields);
  // Elements as PyTorch's state_dict counts them, where each step counter is a tensor of its own.
  int64_t elements_with_numbers() const { return elements + numbers; }
};

// The state that a rule keeps for these parameters, as for Optimizer::state_size().
template <class Rule>
StateSize state_size(std::span<const ParameterSpec> parameters,
                     const typename Rule::Options& options = {}) {
  StateSize size;
  Rule rule;
  if constexpr (requires(StateFields & fields) { rule.shared_state(fields); }) {
    StateFields fields;
    rule.shared_state(fields);
    size.add("", fields);
  }
  for (const ParameterSpec& parameter : parameters) {
    StateFields fields;
    typename Rule::State state;
    Rule::list_state(state, parameter, options, fields);
    size.add(parameter.name, fields);
  }
  return size;
}

}  // namespace minim::optim
