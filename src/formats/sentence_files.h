// The files beside a T5's encoder by which sentence-transformers makes vectors of texts with it: the mean of
// the states of all tokens, of length 1.
// https://github.com/huggingface/sentence-transformers (sentence_transformers/models)
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace trainer {

// `size`: of the vectors; `max_length`: the longest text, in tokens. Throws FormatError.
void write_sentence_files(const std::filesystem::path& directory, int64_t size, int64_t max_length);

// Returns the longest text that such a directory takes; nullopt if it does not say so.
std::optional<int64_t> longest_sentence(const std::filesystem::path& directory);

}  // namespace trainer
