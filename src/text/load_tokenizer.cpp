#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/peft.h"

#include "text/bpe_tokenizer.h"
#include "text/sentencepiece_tokenizer.h"

namespace trainer {

std::filesystem::path tokenizer_directory(const std::filesystem::path& directory) {
  const auto has = [&](const char* name) { return std::filesystem::exists(directory / name); };
  if (has("spiece.model") || has("tokenizer.json")) return directory;
  if (has("tokenizer.model")) {
    throw FormatError(
        concat((directory / "tokenizer.model").string(),
               ": this kind of tokenizer (Llama 2) is not supported; supported are byte-level BPE in ",
               "tokenizer.json and T5's spiece.model"));
  }
  if (has("vocab.json") && has("merges.txt")) {
    throw FormatError(concat(directory.string(),
                             ": has vocab.json and merges.txt, but no tokenizer.json; make it ",
                             "with AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"));
  }
  if (const auto base = base_directory(directory); base != directory) return tokenizer_directory(base);
  throw FormatError(
      concat(directory.string(),
             ": has no tokenizer: neither tokenizer.json nor spiece.model; copy the tokenizer files ",
             "of the model there"));
}

std::unique_ptr<FileTokenizer> load_file_tokenizer(const std::filesystem::path& directory) {
  // T5 directories may hold both; the model's own file is the one that its pretraining used.
  if (std::filesystem::exists(directory / "spiece.model")) return load_sentencepiece_tokenizer(directory);
  return load_bpe_tokenizer(directory);
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory) {
  return load_file_tokenizer(tokenizer_directory(directory));
}

}  // namespace trainer
