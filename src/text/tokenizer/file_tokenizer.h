// A tokenizer made from files, whose added tokens can be written back.
#pragma once

#include <filesystem>
#include <memory>

#include "trainer/text/tokenizer.h"

#include "text/tokenizer/added_tokens.h"

namespace trainer {

class FileTokenizer : public Tokenizer {
 public:
  virtual const AddedTokens& added_tokens() const = 0;
};

// Returns the directory with the tokenizer: `directory` itself, or the base model of an adapter. Throws
// FormatError if there is no tokenizer, or only one that is not supported.
std::filesystem::path tokenizer_directory(const std::filesystem::path& directory);

// Of a directory that has a tokenizer.
std::unique_ptr<FileTokenizer> load_file_tokenizer(const std::filesystem::path& directory);

}  // namespace trainer
