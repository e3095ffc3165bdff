// Tokenizers of T5 in the form of GGUF's metadata.
#pragma once

#include <filesystem>

#include "text/tokenizer/gguf_vocabulary.h"

namespace trainer {

// Fill in what a kind of tokenizer has before added tokens. Throw FormatError for what GGUF cannot express.

// SentencePiece's unigram model (T5, mT5, UMT5): spiece.model, or a tokenizer.json of type Unigram.
void read_unigram_vocabulary(const std::filesystem::path& directory, GgufVocabulary& out);

// ByT5, whose tokens are bytes: as a BPE without merges, which cuts a text into bytes, too.
void read_bytes_vocabulary(GgufVocabulary& out);

}  // namespace trainer
