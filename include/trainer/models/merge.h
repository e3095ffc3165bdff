// An adapter merged into its base model, one tensor at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "trainer/formats/safetensors.h"

namespace trainer {

struct MergeReport {
  int64_t merged = 0;    // tensors that the adapter changes
  int64_t replaced = 0;  // tensors that it brings whole
  int64_t bytes = 0;     // of all weights that were written
  bool untied = false;   // the head became a tensor of its own
};

// Writes a model directory `out` (it must not exist, or be empty): the base model of the adapter directory
// `source` with the adapter's part added, in fp32, rounded once to the stored type (or `dtype`). Of a model
// directory: the model itself, with `dtype`. The adapter's own tokenizer files go before those of the base.
// `out` appears when it is complete. Memory: the adapter and 4 MB pieces of one tensor. Throws ConfigError
// for an `out` that is taken, FormatError for an adapter that does not fit its base.
MergeReport merge_model(const std::filesystem::path& source, const std::filesystem::path& out,
                        std::optional<Dtype> dtype);

}  // namespace trainer
