#include <algorithm>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/peft.h"

#include "base/checksum.h"
#include "base/warn_once.h"
#include "formats/json_file.h"
#include "text/tokenizer/json_reader.h"
#include "text/tokenizer/pipeline.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer/qwen2_steps.h"
#include "text/tokenizer/read_pipeline.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/special_tokens.h"
#include "text/tokenizer/unigram.h"
#include "text/unicode/unicode.h"

namespace trainer {
namespace {

// SentencePiece as T5 uses it: the vocabulary is the pieces, then <extra_id_99> ... <extra_id_0>, and </s>
// ends a text. Ids and texts are the same as with Transformers' T5Tokenizer.

using PieceType = SentencePieceModel::PieceType;

constexpr const char* kBlank = "\u2581";  // stands for a space in pieces

std::vector<UnigramModel::Piece> all_pieces(const SentencePieceModel& model, int64_t extra_ids) {
  std::vector<UnigramModel::Piece> pieces;
  for (const auto& piece : model.pieces) pieces.push_back({piece.text, piece.score});
  for (int64_t i = extra_ids - 1; i >= 0; i--) pieces.push_back({concat("<extra_id_", i, ">"), 0});
  return pieces;
}

int32_t unknown_piece(const SentencePieceModel& model, const std::filesystem::path& path) {
  const auto found = std::ranges::find(model.pieces, PieceType::unknown, &SentencePieceModel::Piece::type);
  if (found == model.pieces.end()) throw FormatError(concat(path.string(), ": has no unknown piece (<unk>)"));
  return static_cast<int32_t>(found - model.pieces.begin());
}

// The texts that are tokens by themselves: T5's three (with their standard names unless the files name
// others), control pieces, pieces that the user defined, and extra ids.
void complete(SpecialTokens& special, const SentencePieceModel& model,
              const std::vector<UnigramModel::Piece>& pieces) {
  for (auto [name, standard] :
       {std::pair(&special.eos, "</s>"), {&special.unk, "<unk>"}, {&special.pad, "<pad>"}}) {
    if (*name) continue;
    *name = standard;
    special.named.push_back({.content = standard, .special = true});
  }
  for (size_t id = 0; id < pieces.size(); id++) {
    const PieceType type = id < model.pieces.size() ? model.pieces[id].type : PieceType::control;
    if (type != PieceType::control && type != PieceType::user_defined) continue;
    special.additional.push_back({.content = pieces[id].text, .special = type == PieceType::control});
  }
}

// Reads a spiece.model. Adds T5's default tokens to `special`. Throws FormatError if the file is damaged or
// not supported.
Pipeline read_sentencepiece_pipeline(const std::filesystem::path& path, SpecialTokens& special) {
  const SentencePieceModel file = read_sentencepiece_model(read_file(path), path);
  // mT5's file sets byte_fallback, but Transformers' T5Tokenizer still gives <unk>, and so does this one.
  if (file.model_type != 1)
    throw FormatError(concat(path.string(), ": only unigram models (T5, mT5) are supported"));
  const UnigramModel model{all_pieces(file, special.extra_ids.value_or(100)), unknown_piece(file, path)};
  Pipeline out;
  for (const auto& piece : model.pieces) {
    const auto id = static_cast<int32_t>(out.names.size());
    out.names.push_back(piece.text);
    if (out.vocabulary.emplace(piece.text, id).second) continue;
    throw FormatError(concat(path.string(), ": the piece '", piece.text, "' occurs twice; when the file has ",
                             "its own <extra_id_N>, tokenizer_config.json must say \"extra_ids\": 0"));
  }
  complete(special, file, model.pieces);
  out.unk = model.unk;
  out.model = std::make_unique<Unigram>(model);
  out.normalizer.add(Charsmap(file.charsmap, path.string()));
  out.pre_tokenizer.add_split(is_white_space, SplitBehavior::removed);
  out.pre_tokenizer.add_metaspace(kBlank, PrependScheme::always, true);
  out.decoder.add_metaspace(kBlank, PrependScheme::always);
  return out;
}

// If tokenizer_config.json does not name them, a Unigram vocabulary gets T5Tokenizer's special tokens.
void name_as_t5(const Pipeline& pipeline, SpecialTokens& special) {
  for (auto [name, standard] : {std::pair(&special.eos, "</s>"), {&special.pad, "<pad>"}}) {
    if (!*name && pipeline.find(standard)) *name = standard;
  }
}

// Transformers 4 let the two keys override the post_processor of tokenizer.json; Transformers 5 does not read
// them where there is a tokenizer.json.
void warn_of_around(const SpecialTokens& special, const Pipeline& pipeline, const std::string& where) {
  const auto check = [&](const char* key, std::optional<bool> wanted, bool added, const char* place) {
    if (!wanted || *wanted == added) return;
    warn_once(concat(where, ": ", key, ": ", *wanted ? "true" : "false",
                     " has no effect, as in Transformers 5: tokenizer.json ", added ? "adds a" : "adds no",
                     " token ", place, " a text (its post_processor)"));
  };
  check("add_bos_token", special.add_bos, !pipeline.prefix.empty(), "before");
  check("add_eos_token", special.add_eos, !pipeline.suffix.empty(), "behind");
}

// With the flag, Transformers replaces the first step that splits words in older files of Mistral.
bool is_older_mistral(const std::filesystem::path& directory) {
  if (!std::filesystem::exists(directory / "config.json")) return false;
  const nlohmann::json config = read_json(directory / "config.json");
  const nlohmann::json type =
      config.is_object() ? config.value("model_type", nlohmann::json()) : nlohmann::json();
  return (type == "mistral" || type == "mistral3") &&
         !config.value("transformers_version", nlohmann::json("4")).dump().starts_with("\"5");
}

void require_fixed_regex(const std::filesystem::path& directory, const Pipeline& pipeline) {
  constexpr size_t kAffected = 100000;  // ids
  constexpr const char* kFixed = R"([\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*)";
  if (pipeline.vocabulary.size() <= kAffected || !is_older_mistral(directory)) return;
  const nlohmann::json file = read_json(directory / "tokenizer.json");
  const auto steps = file.find("pre_tokenizer");
  if (steps != file.end() && steps->dump().find(kFixed) != std::string::npos) return;
  throw FormatError(
      concat((directory / "tokenizer_config.json").string(),
             ": fix_mistral_regex: true is not supported for a tokenizer.json that does not have ",
             "the new pattern; write it with AutoTokenizer.from_pretrained(DIR, ",
             "fix_mistral_regex=True).save_pretrained(DIR), or remove the key"));
}

// Returns a fingerprint of the files that are read here.
std::string fingerprint_of(const std::filesystem::path& directory) {
  std::string checksums;
  for (const char* name : {"spiece.model", "tokenizer.json", "tokenizer_config.json",
                           "special_tokens_map.json", "added_tokens.json"}) {
    if (std::filesystem::exists(directory / name))
      checksums += concat(name, " ", file_checksum(directory / name), " ");
  }
  return checksum(checksums);
}

// Keeps the order of the members, so that a file changes only where tokens are added.
using Json = nlohmann::ordered_json;

Json flags_of(const AddedToken& token) {
  return {{"content", token.content}, {"single_word", token.single_word}, {"lstrip", token.lstrip},
          {"rstrip", token.rstrip},   {"normalized", token.normalized},   {"special", token.special}};
}

Json token_list(const AddedTokens& added) {
  Json list = Json::array();
  for (const auto& [id, token] : added.all()) {
    Json item{{"id", id}};
    item.update(flags_of(token));
    list.push_back(std::move(item));
  }
  return list;
}

Json tokens_by_id(const AddedTokens& added) {
  Json tokens = Json::object();
  for (const auto& [id, token] : added.all()) tokens[std::to_string(id)] = flags_of(token);
  return tokens;
}

void set_member(const std::filesystem::path& path, const char* key, Json value) {
  Json file = std::filesystem::exists(path) ? read_ordered_json_object(path) : Json::object();
  file[key] = std::move(value);
  write_atomically(path, file.dump(2) + "\n");
}

}  // namespace

bool has_tokenizer(const std::filesystem::path& directory) {
  return std::filesystem::exists(directory / "spiece.model") ||
         std::filesystem::exists(directory / "tokenizer.json") || is_byte_tokenizer(directory);
}

std::filesystem::path tokenizer_directory(const std::filesystem::path& directory) {
  require_model_directory(directory);
  const auto has = [&](const char* name) { return std::filesystem::exists(directory / name); };
  if (has_tokenizer(directory)) return directory;
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
  const bool bytes = is_byte_tokenizer(directory);
  SpecialTokens special = read_special_tokens(directory);
  Pipeline pipeline = bytes ? byte_pipeline(special, (directory / "tokenizer_config.json").string())
                      : sentencepiece
                          ? read_sentencepiece_pipeline(directory / "spiece.model", special)
                          : read_pipeline(directory / "tokenizer.json", is_qwen2_tokenizer(directory));
  if (dynamic_cast<const Unigram*>(pipeline.model.get()) != nullptr) name_as_t5(pipeline, special);
  add_special_tokens(
      special, [&](std::string_view name) { return pipeline.find(name); },
      static_cast<int32_t>(pipeline.vocabulary.size()), directory, pipeline.added_tokens);
  if (sentencepiece || bytes) {
    pipeline.suffix = {*pipeline.added_tokens.id_of(*special.eos)};
  } else {
    warn_of_around(special, pipeline, (directory / "tokenizer_config.json").string());
    if (special.fixes_mistral_regex) require_fixed_regex(directory, pipeline);
  }
  return std::make_unique<PipelineTokenizer>(std::move(pipeline), special, fingerprint_of(directory));
}

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& directory) {
  return in_family(ErrorCode::tokenizer, [&] { return load_file_tokenizer(tokenizer_directory(directory)); });
}

void save_tokenizer(const std::filesystem::path& from, const std::vector<std::string>& added,
                    const std::filesystem::path& to) {
  const std::filesystem::path source = tokenizer_directory(from);
  const auto tokenizer = load_file_tokenizer(source);
  tokenizer->add_tokens(added);
  copy_tokenizer_files(source, to);
  if (added.empty()) return;
  if (std::filesystem::exists(to / "tokenizer.json"))
    set_member(to / "tokenizer.json", "added_tokens", token_list(tokenizer->added_tokens()));
  set_member(to / "tokenizer_config.json", "added_tokens_decoder", tokens_by_id(tokenizer->added_tokens()));
  if (is_byte_tokenizer(source))  // perhaps said in config.json only, which is elsewhere
    set_member(to / "tokenizer_config.json", "tokenizer_class", "ByT5Tokenizer");
}

}  // namespace trainer
