// SentencePiece as T5 uses it: the vocabulary is the pieces, then <extra_id_99> ... <extra_id_0>, and </s>
// ends a text. Ids and texts are the same as with Transformers' T5Tokenizer.
#pragma once

#include <filesystem>

#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/special_tokens.h"

namespace trainer {

// Reads a spiece.model. Adds T5's default tokens to `special`. Throws FormatError if the file is damaged or
// not supported.
Pipeline read_sentencepiece_pipeline(const std::filesystem::path& path, SpecialTokens& special);

}  // namespace trainer
