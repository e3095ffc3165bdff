// ByT5's tokenizer, which has no vocabulary file: the id of a byte is its value plus 3, behind <pad>, </s>
// and <unk>; the sentinels <extra_id_0> to <extra_id_124> follow. Gives the ids and texts of Transformers'
// ByT5Tokenizer (Xue et al., "ByT5: Towards a token-free future with pre-trained byte-to-byte models", 2021).
#pragma once

#include <filesystem>

#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/special_tokens.h"

namespace trainer {

// Returns whether tokenizer_config.json, or config.json where that names no class, says ByT5Tokenizer.
bool is_byte_tokenizer(const std::filesystem::path& directory);

// Adds the tokens that ByT5Tokenizer names by itself to `special`. Throws FormatError "WHERE: ..." if the
// number of sentinels and their list differ.
Pipeline byte_pipeline(SpecialTokens& special, const std::string& where);

}  // namespace trainer
