// tokenizer.json of the `tokenizers` library.
#pragma once

#include <filesystem>

#include "text/tokenizer/json_reader.h"
#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/special_tokens.h"

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

// The bytes that a string in base64 stands for. Throws FormatError with its place.
std::string decode_base64(const JsonAt& json);

// ByT5's tokenizer, which has no vocabulary file: the id of a byte is its value plus 3, behind <pad>, </s>
// and <unk>; the sentinels <extra_id_0> to <extra_id_124> follow. Gives the ids and texts of Transformers'
// ByT5Tokenizer (Xue et al., "ByT5: Towards a token-free future with pre-trained byte-to-byte models", 2021).

// Returns whether tokenizer_config.json, or config.json where that names no class, says ByT5Tokenizer.
bool is_byte_tokenizer(const std::filesystem::path& directory);

// Adds the tokens that ByT5Tokenizer names by itself to `special`. Throws FormatError "WHERE: ..." if the
// number of sentinels and their list differ.
Pipeline byte_pipeline(SpecialTokens& special, const std::string& where);

}  // namespace trainer
