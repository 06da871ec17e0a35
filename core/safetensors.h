#pragma once

#include <string>
#include <string_view>

#include "core/checkpoint.h"
#include "core/error.h"
#include "core/tensor.h"

namespace minim {

// A file that breaks a rule of the safetensors format.
class SafetensorsError : public Error {
 public:
  SafetensorsError(std::string_view rule, const std::string& text) : Error(text), rule_(rule) {}

  // The reference reader's name of the rule: "HeaderTooSmall", "HeaderTooLarge",
  // "InvalidHeaderLength", "InvalidHeader", "InvalidHeaderDeserialization", "InvalidOffset",
  // "ValidationOverflow", "MisalignedSlice", "TensorInvalidInfo" or "MetadataIncompleteBuffer".
  std::string_view rule() const { return rule_; }

 private:
  std::string_view rule_;
};

// Opens a safetensors file and checks all of its header; throws SafetensorsError, or Error when
// the file cannot be read. Stricter than the reference reader in one point: no name occurs twice.
Checkpoint read_safetensors(const std::string& path);

// Writes tensors of any strides and devices as a safetensors file, byte for byte as the reference
// writer does, through AtomicFile. Each name once: tied tensors are given under one of their names.
// An empty metadata writes none, which older readers refuse.
void write_safetensors(const std::string& path, const NamedTensors& tensors,
                       const Metadata& metadata = {{"format", "pt"}});

}  // namespace minim
