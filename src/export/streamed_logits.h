// The logits that compare an export with its source.
#pragma once

#include <filesystem>

#include <ATen/core/Tensor.h>

namespace trainer {

// Returns the logits of a model or adapter directory for a fixed prompt of 16 tokens (for an encoder-decoder:
// a source and a target), fp32 [positions, vocab], computed in fp32. Equal weights give the same bits,
// whatever type they are stored in and wherever they lie in memory. Memory: one block in fp32, the output
// projection and the adapter. Throws FormatError if the directory does not load.
at::Tensor streamed_logits(const std::filesystem::path& directory);

}  // namespace trainer
