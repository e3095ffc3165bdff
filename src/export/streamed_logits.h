// The logits that compare an export with its source.
#pragma once

#include <filesystem>
#include <optional>

#include <ATen/core/Tensor.h>

#include "trainer/models/load_model.h"

namespace trainer {

// What gives the logits.
struct LogitsSource {
  std::filesystem::path model;
  std::filesystem::path adapter = {};                   // put on the model, unless it is empty
  std::optional<Quantisation> quantise = std::nullopt;  // the model's weights, while they are loaded
};

// Returns the logits for a fixed prompt of 16 tokens (for an encoder-decoder: a source and a target), fp32
// [positions, vocab], computed in fp32. Equal weights give the same bits, whatever type they are stored in
// and wherever they lie in memory. Memory: one block in fp32, the output projection, the adapter, and the
// codes of weights that are quantised. Throws FormatError if a directory does not load.
at::Tensor streamed_logits(const LogitsSource& source);

}  // namespace trainer
