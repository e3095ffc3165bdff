// GGUF's names for ways to split text into words (tokenizer.ggml.pre), as the programs that read GGUF
// implement them. https://github.com/ggml-org/llama.cpp (src/llama-vocab.cpp)
#pragma once

#include <string>

#include "text/tokenizer/json_reader.h"

namespace trainer {

// Returns the name for the byte-level BPE of this tokenizer.json. Throws FormatError if no name fits exactly.
std::string gguf_pre_tokenizer(const JsonAt& tokenizer);

}  // namespace trainer
