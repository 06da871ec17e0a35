#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/memory_options.h"

// A memory plan for people and for programs.
namespace minim::train {

// `bytes` as blocks, of which `largest` bytes get `width`; eighths of a block count.
std::string bar(int64_t bytes, int64_t largest, int width);

// Model, batch, a step's memory with its largest activations, and a line per optimizer. MiB are
// 2^20 bytes.
std::string memory_table(const MemoryPlan& plan);

// A line per parameter: its shape, and what it takes as weight and, in KiB, in each optimizer's
// state.
std::string memory_by_tensor(const MemoryPlan& plan);

// All of it as one JSON object, in bytes; with plan_options() where given, and tensor by tensor if
// asked for.
std::string memory_json(const MemoryPlan& plan, const std::vector<OptionPlan>& options = {},
                        bool by_tensor = false);

}  // namespace minim::train
