#include "text/tokenizer/gguf_unigram.h"

#include <string>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "base/utf8.h"
#include "base/warn_once.h"
#include "text/tokenizer/byte_tokens.h"
#include "text/tokenizer/json_reader.h"
#include "text/tokenizer/read_pipeline.h"
#include "text/tokenizer/sentencepiece_model.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

void add_piece(GgufVocabulary& out, const std::string& text, double score, GgufTokenType type) {
  out.tokens.push_back(text);
  out.types.push_back(static_cast<int32_t>(type));
  out.scores.push_back(static_cast<float>(score));
}

void read_sentencepiece_file(const fs::path& path, GgufVocabulary& out) {
  const SentencePieceModel model = read_sentencepiece_model(read_file(path), path);
  for (const SentencePieceModel::Piece& piece : model.pieces)
    add_piece(out, piece.text, piece.score, static_cast<GgufTokenType>(piece.type));
  out.charsmap.assign(model.charsmap.begin(), model.charsmap.end());
  out.add_space_prefix = out.remove_extra_spaces = true;  // as T5's tokenizer, whatever the file says
}

using nlohmann::json;

// Several blanks as one.
bool is_blanks_as_one(const json& step) {
  return step.value("type", "") == "Replace" && step.value("content", "") == " " &&
         step.value("pattern", json()) == json{{"Regex", " {2,}"}};
}

void read_normalizer_for_gguf(const JsonAt& normalizer, GgufVocabulary& out) {
  if (normalizer.is_null()) return;
  const std::string type = normalizer.at("type").string();
  if (type == "Sequence") {
    const JsonAt steps = normalizer.at("normalizers");
    for (size_t i = 0; i < steps.array().size(); i++) read_normalizer_for_gguf(steps.item(i), out);
  } else if (type == "Precompiled" && out.charsmap.empty()) {
    const std::string bytes = decode_base64(normalizer.at("precompiled_charsmap"));
    out.charsmap.assign(bytes.begin(), bytes.end());
  } else if (is_blanks_as_one(normalizer.value)) {
    out.remove_extra_spaces = true;
  } else {
    normalizer.fail(concat("normalizer ", type, " cannot be expressed in GGUF; export safetensors"));
  }
}

// Blanks as U+2581 with one in front, alone or after a cut at white space.
void read_words_for_gguf(const JsonAt& words, GgufVocabulary& out) {
  json steps = json::array({words.value});
  if (words.value.is_object() && words.value.value("type", "") == "Sequence")
    steps = words.value.value("pretokenizers", json::array());
  const json last = steps.empty() ? json() : steps.back();
  const bool cuts =
      steps.size() == 2 && steps[0].is_object() && steps[0].value("type", "") == "WhitespaceSplit";
  if ((steps.size() != 1 && !cuts) || !last.is_object() || last.value("type", "") != "Metaspace" ||
      last.value("replacement", "") != "\u2581") {
    words.fail("GGUF has no name for this way to split words before pieces; export safetensors");
  }
  const std::string scheme = last.value("prepend_scheme", "always");
  out.add_space_prefix = scheme != "never" && last.value("add_prefix_space", true);
  out.remove_extra_spaces = cuts || out.remove_extra_spaces.value_or(false);
}

void read_json_file(const fs::path& path, GgufVocabulary& out) {
  const json file = read_json(path);
  const JsonAt root{file, path.string() + ":"};
  const JsonAt model = root.at("model");
  for (const json& piece : model.at("vocab").array())
    add_piece(out, piece[0].get<std::string>(), piece[1].get<double>(), GgufTokenType::normal);
  if (model.value.value("byte_fallback", false))
    warn_once(concat(path.string(), ": model.byte_fallback has no effect in GGUF: characters that no piece ",
                     "covers become the unknown token there"));
  read_normalizer_for_gguf(root.get("normalizer"), out);
  read_words_for_gguf(root.get("pre_tokenizer"), out);
  if (const JsonAt unk = model.get("unk_id"); !unk.is_null())
    out.types.at(static_cast<size_t>(unk.id())) = static_cast<int32_t>(GgufTokenType::unknown);
}

}  // namespace

void read_unigram_vocabulary(const fs::path& directory, GgufVocabulary& out) {
  out.model = "t5";
  out.pre = "default";
  const fs::path pieces = directory / "spiece.model";
  if (fs::exists(pieces)) {
    read_sentencepiece_file(pieces, out);
  } else {
    read_json_file(directory / "tokenizer.json", out);
  }
}

void read_bytes_vocabulary(GgufVocabulary& out) {
  constexpr size_t first_byte = 3;  // behind <pad>, </s> and <unk>, which are added tokens
  out.model = "gpt2";
  out.pre = "gpt-2";
  out.tokens.resize(first_byte + 256);
  out.types.assign(out.tokens.size(), static_cast<int32_t>(GgufTokenType::normal));
  constexpr char32_t last_character = 0x143;
  for (char32_t c = 0x21; c <= last_character; c++) {
    const std::string character = utf8(c);
    if (const auto byte = byte_level_bytes(character))
      out.tokens[first_byte + static_cast<unsigned char>(byte->front())] = character;
  }
}

}  // namespace trainer
