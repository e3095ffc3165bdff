// tokenizer.json of the `tokenizers` library.
#pragma once

#include <filesystem>

#include "text/tokenizer/json_reader.h"
#include "text/tokenizer/pipeline.h"

namespace trainer {

// Throws FormatError that names the part of the file if it is damaged or cannot be done exactly as it says.
Pipeline read_pipeline(const std::filesystem::path& path);

// The parts. `json` may be null; then there is nothing to do.
void read_normalizer(const JsonAt& json, Normalizer& out);
// Returns whether words are to be given to the model as bytes (ByteLevel).
bool read_pre_tokenizer(const JsonAt& json, PreTokenizer& out);
void read_decoder(const JsonAt& json, Decoder& out);
// The model with its vocabulary.
void read_model(const JsonAt& json, bool byte_level, Pipeline& out);

[[noreturn]] void refuse_type(const JsonAt& json);

}  // namespace trainer
