#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"

#include "base/checksum.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer/read_pipeline.h"
#include "text/tokenizer/sentencepiece_pipeline.h"
#include "text/tokenizer/unigram.h"

namespace trainer {
namespace {

// If tokenizer_config.json does not name them, a Unigram vocabulary gets T5Tokenizer's special tokens.
void name_as_t5(const Pipeline& pipeline, SpecialTokens& special) {
  for (auto [name, standard] : {std::pair(&special.eos, "</s>"), {&special.pad, "<pad>"}}) {
    if (!*name && pipeline.find(standard)) *name = standard;
  }
}

// As in Transformers, add_bos_token and add_eos_token in tokenizer_config.json override the post_processor.
void replace_template(const SpecialTokens& special, Pipeline& pipeline) {
  const auto ids = [&](bool wanted, const char* name) {
    const auto found = special.by_name.find(name);
    if (!wanted || found == special.by_name.end()) return std::vector<int32_t>();
    return std::vector{*pipeline.added_tokens.id_of(found->second)};
  };
  pipeline.prefix = ids(special.around->bos, "bos_token");
  pipeline.suffix = ids(special.around->eos, "eos_token");
}

// Returns a fingerprint of the files that are read here.
std::string fingerprint_of(const std::filesystem::path& directory) {
  std::string checksums;
  for (const char* name :
       {"spiece.model", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    if (std::filesystem::exists(directory / name))
      checksums += concat(name, " ", file_checksum(directory / name), " ");
  }
  return checksum(checksums);
}

}  // namespace

std::filesystem::path tokenizer_directory(const std::filesystem::path& directory) {
  require_model_directory(directory);
  const auto has = [&](const char* name) { return std::filesystem::exists(directory / name); };
  if (has("spiece.model") || has("tokenizer.json")) return directory;
  if (has("tokenizer.model")) {
    throw FormatError(concat(
        (directory / "tokenizer.model").string(),
        ": a SentencePiece model of Llama 2 or Mistral is not supported by itself; make its tokenizer.json ",
        "with AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)"));
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
  // T5 directories may hold both files. The model was pretrained with spiece.model.
  const bool sentencepiece = std::filesystem::exists(directory / "spiece.model");
  SpecialTokens special = read_special_tokens(directory);
  Pipeline pipeline = sentencepiece ? read_sentencepiece_pipeline(directory / "spiece.model", special)
                                    : read_pipeline(directory / "tokenizer.json");
  if (dynamic_cast<const Unigram*>(pipeline.model.get()) != nullptr) name_as_t5(pipeline, special);
  add_special_tokens(
      special, [&](std::string_view name) { return pipeline.find(name); },
      static_cast<int32_t>(pipeline.vocabulary.size()), (directory / "tokenizer_config.json").string(),
      pipeline.added_tokens);
  if (sentencepiece) {
    pipeline.suffix = {*pipeline.added_tokens.id_of(*special.eos)};
  } else if (special.around) {
    replace_template(special, pipeline);
  }
  return std::make_unique<PipelineTokenizer>(std::move(pipeline), special, fingerprint_of(directory));
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory) {
  return in_family(ErrorCode::tokenizer, [&] { return load_file_tokenizer(tokenizer_directory(directory)); });
}

}  // namespace trainer
