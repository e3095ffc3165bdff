// Writes a merged model, or a LoRA adapter, as a GGUF file, and compares that file with it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "trainer/formats/gguf.h"

#include "adapters/merged_model.h"

namespace trainer {

// The directory that has the chat template of the result, if there is one: the source, else its base.
std::filesystem::path chat_directory(const MergedModel& model);

// Writes matrices in `type` (none: as most of them are stored) and vectors in fp32; gguf_types() says more.
// `name`: general.name. Returns the bytes of the weights. Throws FormatError that names what GGUF cannot
// express, and tensors whose values are out of the type's range.
int64_t write_gguf_model(const MergedModel& model, std::optional<GgufType> type, const std::string& name,
                         const std::filesystem::path& path);

// Reads the file again and compares every value with the model's own, rounded to `type`; in types that keep
// blocks of values, within what such types can be off. Returns a report for the user. Throws FormatError that
// names a tensor that differs.
std::string check_gguf_model(const MergedModel& model, std::optional<GgufType> type,
                             const std::filesystem::path& path);

// For llama.cpp's --lora and Ollama's ADAPTER.
// https://github.com/ggml-org/llama.cpp (convert_lora_to_gguf.py, src/llama-adapter.cpp)
//
// Writes A and B of every matrix that the adapter changes, in `type`; the file fits a GGUF of the base.
// Readers scale B A by adapter.lora.alpha / r; where ranks or alphas differ between modules, the rest of the
// scale is multiplied into B. Returns the bytes of the weights. Throws FormatError that names what such a
// file cannot express: DoRA, adapters of an embedding, trained biases, whole weights, an untied head.
int64_t write_gguf_adapter(const MergedModel& model, GgufType type, const std::string& name,
                           const std::filesystem::path& path);

// Reads the file again and compares every value with the adapter's own, rounded to the type. Returns a report
// for the user. Throws FormatError that names a tensor that differs.
std::string check_gguf_adapter(const MergedModel& model, GgufType type, const std::filesystem::path& path);

}  // namespace trainer
