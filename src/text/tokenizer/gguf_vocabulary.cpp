#include "text/tokenizer/gguf_vocabulary.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "base/foreign_errors.h"
#include "text/tokenizer/gguf_unigram.h"
#include "text/tokenizer/json_reader.h"
#include "text/tokenizer/known_splits.h"
#include "text/tokenizer/pipeline_tokenizer.h"
#include "text/tokenizer/read_pipeline.h"
#include "text/tokenizer/sentencepiece_model.h"
#include "text/tokenizer/special_tokens.h"

namespace trainer {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

// GGUF's names for ways to split text into words (tokenizer.ggml.pre), as the programs that read GGUF
// implement them. https://github.com/ggml-org/llama.cpp (src/llama-vocab.cpp)

struct Split {
  std::string_view pattern;
  bool ignore_merges;
  const char* name;
};

// Patterns of a Split before ByteLevel. A name also says whether a word that is a token is taken before any
// merge.
constexpr Split kSplits[]{
    {patterns::kQwen2, false, "qwen2"},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false, "qwen35"},
    {patterns::kLlama3, true, "llama-bpe"},
    {patterns::kLlama3, false, "smaug-bpe"},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     true, "tekken"},
    {R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     false, "gpt-4o"},
};

bool flag_or(const json& step, const char* key, bool fallback) {
  const auto found = step.find(key);
  return found == step.end() || !found->is_boolean() ? fallback : found->get<bool>();
}

bool is_byte_level(const json& step, bool with_pattern) {
  return step.value("type", "") == "ByteLevel" && !flag_or(step, "add_prefix_space", true) &&
         flag_or(step, "use_regex", true) == with_pattern;
}

// Returns GGUF's name of a pre-tokenizer: its only step, or the two of a Sequence.
std::optional<std::string> name_of(const json& pre_tokenizer, bool ignore_merges) {
  json steps = json::array({pre_tokenizer});
  if (pre_tokenizer.value("type", "") == "Sequence")
    steps = pre_tokenizer.value("pretokenizers", json::array());
  for (const json& step : steps) {
    if (!step.is_object()) return std::nullopt;
  }
  if (steps.size() == 1 && !ignore_merges && is_byte_level(steps[0], true)) return "gpt-2";
  if (steps.size() != 2) return std::nullopt;
  if (steps[0].value("type", "") == "Digits") {
    const bool smollm =
        !ignore_merges && flag_or(steps[0], "individual_digits", false) && is_byte_level(steps[1], true);
    return smollm ? std::optional<std::string>("smollm") : std::nullopt;
  }
  if (steps[0].value("type", "") != "Split" || !is_byte_level(steps[1], false)) return std::nullopt;
  if (steps[0].value("behavior", "") != "Isolated" || flag_or(steps[0], "invert", false)) return std::nullopt;
  const json pattern = steps[0].value("pattern", json::object());
  for (const Split& split : kSplits) {
    if (pattern.is_object() && pattern.value("Regex", json()) == split.pattern &&
        split.ignore_merges == ignore_merges)
      return split.name;
  }
  return std::nullopt;
}

// Returns the name for the byte-level BPE of this tokenizer.json. Throws FormatError if no name fits exactly.
std::string gguf_pre_tokenizer(const JsonAt& tokenizer) {
  // Programs that read GGUF do not normalize to NFC; nearly all text is in it.
  const JsonAt normalizer = tokenizer.get("normalizer");
  if (!normalizer.is_null() && normalizer.at("type").string() != "NFC")
    normalizer.fail(concat("normalizer ", normalizer.at("type").string(), " cannot be expressed in GGUF"));
  const JsonAt pre_tokenizer = tokenizer.at("pre_tokenizer");
  const bool ignore_merges = flag_or(tokenizer.at("model").value, "ignore_merges", false);
  std::optional<std::string> name;
  if (pre_tokenizer.value.is_object()) name = name_of(pre_tokenizer.value, ignore_merges);
  if (!name) {
    pre_tokenizer.fail(
        "GGUF has no name for this way to split words (known: those of Qwen2, Qwen3.5, Llama 3, SmolLM, "
        "GPT-2, "
        "GPT-4o and Mistral's Tekken); export safetensors");
  }
  return *name;
}

// Far below every score of a piece, so that no merge makes the token.
constexpr float kNeverMerged = -1000000.0f;

void set(GgufVocabulary& out, int64_t id, const std::string& token, GgufTokenType type) {
  const auto size = static_cast<size_t>(id) + 1;
  if (out.tokens.size() < size) {
    out.tokens.resize(size);
    out.types.resize(size, 0);
  }
  out.tokens[size - 1] = token;
  out.types[size - 1] = static_cast<int32_t>(type);
}

// "a b" or ["a", "b"], already checked by the tokenizer's own reader.
std::pair<std::string, std::string> parts_of(const json& merge) {
  if (merge.is_array()) return {merge[0], merge[1]};
  const std::string& text = merge.get_ref<const std::string&>();
  const size_t blank = text.find(' ');
  return {text.substr(0, blank), text.substr(blank + 1)};
}

std::vector<std::string> merges_of(const JsonAt& model) {
  std::vector<std::string> merges;
  for (const json& merge : model.at("merges").array()) {
    const auto [left, right] = parts_of(merge);
    merges.push_back(concat(left, " ", right));
  }
  return merges;
}

void read_byte_level_vocabulary(const JsonAt& tokenizer, GgufVocabulary& out) {
  out.model = "gpt2";
  out.pre = gguf_pre_tokenizer(tokenizer);
  out.merges = merges_of(tokenizer.at("model"));
}

// The steps of SentencePiece: a blank in front (or none), blanks as U+2581, no words.
bool reads_as_sentencepiece(const JsonAt& tokenizer, bool& add_space_prefix) {
  const json normalizer = tokenizer.get("normalizer").value, words = tokenizer.get("pre_tokenizer").value;
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  const json prepend = {{"type", "Prepend"}, {"prepend", "\u2581"}};
  const json sequence = {{"type", "Sequence"}, {"normalizers", {prepend, replace}}};
  // Gemma's cut at blanks, of which the normalizer leaves none.
  const bool cuts_nothing = normalizer == replace && words.is_object() &&
                            words.value("type", "") == "Split" &&
                            words.value("pattern", json()) == json{{"String", " "}};
  if (words.is_null() || cuts_nothing) {
    add_space_prefix = normalizer == sequence;
    return add_space_prefix || normalizer == replace;
  }
  if (!normalizer.is_null() || words.value("type", "") != "Metaspace") return false;
  const std::string scheme = words.value("prepend_scheme", "always");
  add_space_prefix = scheme != "never" && words.value("add_prefix_space", true);
  return words.value("replacement", "") == "\u2581" && !words.value("split", true);
}

// Scores that make the readers of GGUF merge in the order of the merges: a piece's is minus its place among
// the pieces by their first merge, which is what SentencePiece itself stores.
std::vector<float> scores_of(const JsonAt& model, const GgufVocabulary& out) {
  std::unordered_map<std::string, size_t> rank;
  for (const json& merge : model.at("merges").array()) {
    const auto [left, right] = parts_of(merge);
    rank.try_emplace(left + right, rank.size());
  }
  std::vector<float> scores(out.tokens.size(), 0.0f);
  std::vector<size_t> order;
  for (size_t id = 0; id < out.tokens.size(); id++) {
    if (out.types[id] == static_cast<int32_t>(GgufTokenType::normal)) order.push_back(id);
  }
  const auto rank_of = [&](size_t id) {
    const auto found = rank.find(out.tokens[id]);
    return found == rank.end() ? std::numeric_limits<size_t>::max() : found->second;
  };
  std::ranges::stable_sort(order, {}, rank_of);
  for (size_t place = 0; place < order.size(); place++) scores[order[place]] = -static_cast<float>(place);
  return scores;
}

// SentencePiece's own file, where it is there.
bool read_scores(const fs::path& path, GgufVocabulary& out) {
  if (!fs::exists(path)) return false;
  const SentencePieceModel model = read_sentencepiece_model(read_file(path), path);
  if (model.model_type != 2)
    throw FormatError(concat(path.string(), ": only SentencePiece's BPE can be expressed in GGUF"));
  for (size_t id = 0; id < model.pieces.size(); id++) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    if (id >= out.tokens.size() || out.tokens[id] != piece.text) {
      throw FormatError(concat(path.string(), ": piece ", id, " is '", piece.text,
                               "', which is not in tokenizer.json; the files do not belong together"));
    }
    out.types[id] = static_cast<int32_t>(piece.type);
    out.scores[id] = piece.score;
  }
  return true;
}

void read_sentencepiece(const JsonAt& file, const FileTokenizer& tokenizer, const fs::path& directory,
                        GgufVocabulary& out) {
  const JsonAt model = file.at("model");
  bool add_space_prefix = false;
  if (!reads_as_sentencepiece(file, add_space_prefix)) {
    file.at("pre_tokenizer")
        .fail("GGUF has no name for what is done to text before these merges; export safetensors");
  }
  out.model = "llama";
  out.pre = "default";
  out.add_space_prefix = add_space_prefix;
  for (size_t id = 0; id < out.tokens.size(); id++) {
    const std::string& token = out.tokens[id];
    if (token.size() == 6 && token.starts_with("<0x") && token.ends_with('>'))
      out.types[id] = static_cast<int32_t>(GgufTokenType::byte);
  }
  if (const auto unk = tokenizer.unk_id(); unk && static_cast<size_t>(*unk) < out.types.size())
    out.types[static_cast<size_t>(*unk)] = static_cast<int32_t>(GgufTokenType::unknown);
  out.merges = merges_of(model);
  out.scores = scores_of(model, out);
  read_scores(directory / "tokenizer.model", out);
}

// Added tokens go before what the vocabulary says of their ids.
void add_added_tokens(const FileTokenizer& tokenizer, GgufVocabulary& out) {
  for (const auto& [id, token] : tokenizer.added_tokens().all()) {
    const bool is_unknown = static_cast<size_t>(id) < out.types.size() &&
                            out.types[id] == static_cast<int32_t>(GgufTokenType::unknown);
    if (is_unknown) continue;
    set(out, id, token.content, token.special ? GgufTokenType::control : GgufTokenType::user_defined);
    if (out.scores.empty()) continue;
    const size_t known = out.scores.size();
    out.scores.resize(out.tokens.size(), kNeverMerged);
    if (static_cast<size_t>(id) < known && !token.special) out.scores[id] = kNeverMerged;
  }
}

void fill_up(const fs::path& directory, int64_t rows, GgufVocabulary& out) {
  if (static_cast<int64_t>(out.tokens.size()) > rows) {
    throw FormatError(concat(directory.string(), ": the tokenizer gives ids up to ", out.tokens.size() - 1,
                             ", but the embedding has ", rows, " rows"));
  }
  const size_t count = static_cast<size_t>(rows);
  out.types.resize(count, 0);
  out.tokens.resize(count);
  if (!out.scores.empty()) out.scores.resize(count, kNeverMerged);
  for (size_t id = 0; id < count; id++) {
    if (out.types[id] == 0)
      set(out, static_cast<int64_t>(id), concat("[PAD", id, "]"), GgufTokenType::unused);
  }
}

// The special tokens, and whether one is put around a text.
void read_special(const FileTokenizer& tokenizer, const fs::path& directory, GgufVocabulary& out) {
  out.eos = tokenizer.eos_id();
  out.pad = tokenizer.pad_id();
  out.unk = tokenizer.unk_id();
  const SpecialTokens special = read_special_tokens(directory);
  if (const auto bos = special.by_name.find("bos_token"); bos != special.by_name.end())
    out.bos = tokenizer.token_to_id(bos->second);

  const std::string probe = "a";
  const std::vector<int32_t> plain = tokenizer.encode(probe, false), around = tokenizer.encode(probe, true);
  const auto begin = std::search(around.begin(), around.end(), plain.begin(), plain.end());
  const auto end = begin == around.end() ? begin : begin + std::ssize(plain);
  const std::vector<int32_t> before(around.begin(), begin), after(end, around.end());
  if (!out.bos && before.size() == 1) out.bos = before[0];  // known from the template only
  out.add_bos = !before.empty();
  out.add_eos = !after.empty();
  const auto fits = [](const std::vector<int32_t>& ids, const std::optional<int32_t>& id) {
    return ids.empty() || (ids.size() == 1 && id == ids[0]);
  };
  if (!fits(before, out.bos) || !fits(after, out.eos)) {
    throw FormatError(
        concat((directory / "tokenizer.json").string(),
               ": post_processor: what it adds around a text cannot be expressed in GGUF, which has "
               "only a BOS in front and an EOS at the end; export safetensors"));
  }
}

}  // namespace

// A tokenizer.json of type BPE.
static void read_bpe_vocabulary(const FileTokenizer& tokenizer, const fs::path& directory,
                                GgufVocabulary& out) {
  const fs::path path = directory / "tokenizer.json";
  const json file = read_json(path);
  const JsonAt root{file, path.string() + ":"};
  const JsonAt model = root.at("model");
  for (const auto& [token, id] : model.at("vocab").value.items())
    set(out, id.get<int64_t>(), token, GgufTokenType::normal);
  if (model.value.value("byte_fallback", false)) {
    read_sentencepiece(root, tokenizer, directory, out);
  } else {
    read_byte_level_vocabulary(root, out);
  }
}

static bool is_unigram(const fs::path& directory) {
  if (fs::exists(directory / "spiece.model")) return true;
  const json file = read_json(directory / "tokenizer.json");
  return JsonAt{file, ""}.at("model").value.value("type", "BPE") == "Unigram";
}

static GgufVocabulary read_vocabulary_of(const fs::path& directory, int64_t rows) {
  const auto tokenizer = load_file_tokenizer(directory);
  GgufVocabulary out;
  if (is_byte_tokenizer(directory)) {
    read_bytes_vocabulary(out);
  } else if (is_unigram(directory)) {
    read_unigram_vocabulary(directory, out);
  } else {
    read_bpe_vocabulary(*tokenizer, directory, out);
  }
  add_added_tokens(*tokenizer, out);
  fill_up(directory, rows, out);
  read_special(*tokenizer, directory, out);
  return out;
}

void make_gemma4(GgufVocabulary& vocabulary) {
  static constexpr std::string_view kMarks[]{"<|channel>",   "<channel|>",       "<|tool_call>",
                                             "<tool_call|>", "<|tool_response>", "<tool_response|>",
                                             "<|\"|>"};
  if (vocabulary.model != "llama" || vocabulary.add_space_prefix.value_or(true)) return;
  vocabulary.model = vocabulary.pre = "gemma4";
  for (size_t id = 0; id < vocabulary.tokens.size(); id++) {
    if (std::ranges::find(kMarks, vocabulary.tokens[id]) != std::end(kMarks))
      vocabulary.types[id] = static_cast<int32_t>(GgufTokenType::user_defined);
  }
}

GgufVocabulary read_gguf_vocabulary(const fs::path& from, int64_t rows) {
  const fs::path directory = tokenizer_directory(from);
  return in_our_words((directory / "tokenizer.json").string(),
                      "GGUF needs a BPE or Unigram tokenizer of the usual form; export safetensors",
                      [&] { return read_vocabulary_of(directory, rows); });
}

}  // namespace trainer
