// Exports a model: merges, converts and writes it, then reads the files again and compares them with the
// source (docs/export.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "trainer/formats/gguf.h"
#include "trainer/formats/safetensors.h"
#include "trainer/models/load_model.h"

namespace trainer {

struct ExportRequest {
  // A model or adapter directory, a checkpoint, or a run's output directory (if that holds no model or
  // adapter itself: its newest checkpoint).
  std::filesystem::path source;
  std::filesystem::path out;                  // must not exist, except as an empty directory
  std::optional<Dtype> dtype = std::nullopt;  // f32, f16 or bf16; none: as stored
  int64_t max_shard_bytes = 5'000'000'000;
  bool adapter_only = false;  // write the adapter as an adapter, without its base
  // The model with its original weights, to merge onto instead of the adapter's own base.
  std::filesystem::path base = {};
  bool dequantised = false;  // merge onto the base's weights as quantising makes them
  // Write the weights of linear layers quantised; not the head.
  std::optional<Quantisation> quantise = std::nullopt;
  bool modelfile = false;  // with a GGUF of a whole model: a Modelfile for Ollama beside it
};

struct ExportReport {
  int64_t merged = 0;                    // tensors that the adapter changes
  int64_t replaced = 0;                  // tensors that the adapter replaces as a whole
  int64_t bytes = 0;                     // size of all weights that were written
  bool untied = false;                   // whether the head became a tensor of its own
  std::string check;                     // a sentence: what was compared, and how well it agrees
  std::string difference = {};           // a sentence: how much quantising changes the logits, if it does
  std::filesystem::path modelfile = {};  // where it was written, if it was
};

// Writes a Hugging Face model directory: the model itself, or the base of an adapter with the adapter's part
// added in fp32 and rounded once to the stored type (or `dtype`). The adapter's own tokenizer files take
// precedence over those of the base. With `adapter_only` it writes a PEFT directory. Then the result is
// loaded from disk, and its logits for a fixed prompt are compared with those of the source: they must be
// equal if no value was changed, otherwise within what rounding to the type explains. `out` appears when all
// of this is done; after a failure nothing is left behind. Memory: the adapter and 4 MB of one tensor; later
// one block in fp32 and the output projection. With `quantise` also the scales of all weights and the codes
// of one; where an adapter was trained on weights that were quantised while they were loaded, later all
// codes. Throws ConfigError if `out` exists or options do not go together, and FormatError for an adapter
// that does not fit its base, values beyond fp16 (naming the tensor), too little disk space, and logits that
// differ.
ExportReport export_model(const ExportRequest& request);

// Writes the merged model as one GGUF file `out` with its tokenizer and chat template: matrices in `type`
// (none: as stored; Q4_K: the mix Q4_K_M of llama.cpp), vectors in fp32. With `adapter_only` it writes the
// LoRA matrices alone (none: in fp32), for programs that apply them to a GGUF of the base. dtype and
// max_shard_bytes are not used. Then every tensor is read again and compared. Throws as above, and
// FormatError for what GGUF cannot express; the message names it.
ExportReport export_gguf(const ExportRequest& request, std::optional<GgufType> type);

}  // namespace trainer
