#include "text/tokenizer/sentencepiece_pipeline.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/unigram.h"
#include "text/unicode/unicode.h"

namespace trainer {
namespace {

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

}  // namespace

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

}  // namespace trainer
