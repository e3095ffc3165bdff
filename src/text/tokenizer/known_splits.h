// The patterns that GPT-2, Qwen2 and Llama 3 use to split text into words, as hand-written functions. They
// are several times as fast as the regular expressions and give the same words.
#pragma once

#include <string_view>
#include <vector>

#include "text/tokenizer/regex.h"

namespace trainer {

// Appends all matches in `text` (valid UTF-8). Together they cover the whole text.
using FindAll = void (*)(std::string_view text, std::vector<Span>& matches);

// Returns the function for exactly this pattern; nullptr for any other pattern.
FindAll known_split(std::string_view pattern);

namespace patterns {

// Also of "ByteLevel" with use_regex.
inline constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace patterns
}  // namespace trainer
