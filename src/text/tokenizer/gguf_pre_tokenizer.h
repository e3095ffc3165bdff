// GGUF's names for ways to cut text into words (tokenizer.ggml.pre): what the programs that read it do by
// them. https://github.com/ggml-org/llama.cpp (src/llama-vocab.cpp)
#pragma once

#include <string>

#include "text/tokenizer/json_reader.h"

namespace trainer {

// For the byte-level BPE of this tokenizer.json. Throws FormatError where none does the same.
std::string gguf_pre_tokenizer(const JsonAt& tokenizer);

}  // namespace trainer
