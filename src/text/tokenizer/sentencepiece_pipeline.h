// SentencePiece as T5 uses it: pieces, then <extra_id_99> ... <extra_id_0>; </s> ends a text. Ids and text
// are those of Transformers' T5Tokenizer.
#pragma once

#include <filesystem>

#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/special_tokens.h"

namespace trainer {

// Of a spiece.model. Adds to `special` what T5 has without being told. Throws FormatError for what is damaged
// or not supported.
Pipeline read_sentencepiece_pipeline(const std::filesystem::path& path, SpecialTokens& special);

}  // namespace trainer
