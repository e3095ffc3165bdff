// The logits by which an export is held against what it was made from.
#pragma once

#include <filesystem>

#include <ATen/core/Tensor.h>

namespace trainer {

// Of a model or adapter directory: fp32 [positions, vocab] of a fixed prompt of 16 tokens (an
// encoder-decoder: a source and a target), computed in fp32. The same values give the same bits, whatever
// type they are stored in and wherever they lie. Memory: one block in fp32, the output projection and the
// adapter. Throws FormatError where the directory does not load.
at::Tensor streamed_logits(const std::filesystem::path& directory);

}  // namespace trainer
