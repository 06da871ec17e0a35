#pragma once

#include <string>

#include "core/checkpoint.h"

namespace minim {

// Opens a `pytorch_model.bin` as torch.save writes it: since torch 1.6 a ZIP file of stored
// entries, before that a sequence of pickles followed by the raw storages. The pickles are
// interpreted by an allow-list that can make tensors and containers and nothing else; anything
// beyond it is an Error that names it. Every offset, stride and size is checked against the file.
Checkpoint read_torch_archive(const std::string& path);

}  // namespace minim
