// tokenizer.json of the `tokenizers` library.
#pragma once

#include <filesystem>

#include "text/tokenizer/json_reader.h"
#include "text/tokenizer/pipeline.h"

namespace trainer {

// Throws FormatError if the file is damaged or asks for something that is not supported exactly as it says.
// The message names the part of the file. `as_qwen2`: with the steps of that class (put_qwen2_steps()).
Pipeline read_pipeline(const std::filesystem::path& path, bool as_qwen2 = false);

// These read the parts. `json` may be null; then they do nothing.
void read_normalizer(const JsonAt& json, Normalizer& out);
// Returns whether the model gets words as bytes (ByteLevel).
bool read_pre_tokenizer(const JsonAt& json, PreTokenizer& out);
void read_decoder(const JsonAt& json, Decoder& out);
// The model with its vocabulary.
void read_model(const JsonAt& json, bool byte_level, Pipeline& out);

[[noreturn]] void refuse_type(const JsonAt& json);

}  // namespace trainer
