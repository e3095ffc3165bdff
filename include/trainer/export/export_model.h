// A model for others: merged, converted, in files that were read again and held against what they were made
// from (docs/export.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "trainer/formats/gguf.h"
#include "trainer/formats/safetensors.h"

namespace trainer {

struct ExportRequest {
  // A model or adapter directory, a checkpoint, or a run's output directory (without a model or adapter of
  // its own: its newest checkpoint).
  std::filesystem::path source;
  std::filesystem::path out;                  // it must not exist; a directory may be there, empty
  std::optional<Dtype> dtype = std::nullopt;  // f32, f16 or bf16; none: as stored
  int64_t max_shard_bytes = 5'000'000'000;
  bool adapter_only = false;  // the adapter as an adapter
};

struct ExportReport {
  int64_t merged = 0;    // tensors that the adapter changes
  int64_t replaced = 0;  // tensors that it brings whole
  int64_t bytes = 0;     // of all weights that were written
  bool untied = false;   // the head became a tensor of its own
  std::string check;     // what was compared, and how well it agrees
};

// Writes a Hugging Face model directory: the base of an adapter with the adapter's part added, in fp32,
// rounded once to the stored type (or `dtype`); or the model itself. The adapter's own tokenizer files go
// before those of the base. With `adapter_only` a PEFT directory. Then it is loaded from disk and its logits
// for a fixed prompt are compared with those of the source: equal where no value was changed, else within
// what rounding to the type explains. `out` appears when all of this is done; on a failure nothing stays.
// Memory: the adapter, and 4 MB of one tensor, then one block in fp32 and the output projection. Throws
// ConfigError for an `out` that is taken, FormatError for an adapter that does not fit its base, values
// beyond fp16 (naming the tensor), a lack of space, and logits that differ.
ExportReport export_model(const ExportRequest& request);

// Writes the merged model as one GGUF file `out` with its tokenizer and chat template: matrices in `type`
// (none: as stored), vectors in fp32. dtype, max_shard_bytes and adapter_only are not used. Then every tensor
// is read again and compared. Throws as above, and FormatError for what GGUF cannot say, by name.
ExportReport export_gguf(const ExportRequest& request, std::optional<GgufType> type);

}  // namespace trainer
