// Tokenizers as GGUF stores them.
#include "text/tokenizer/gguf_vocabulary.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/files.h"

#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using nlohmann::json;
using test::contains;
using test::error_message;
using test::TemporaryDirectory;

json byte_level_step(bool with_pattern) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", with_pattern}};
}

// A tokenizer like GPT-2's, with three tokens and an added one.
json small_tokenizer() {
  return {{"version", "1.0"},
          {"added_tokens",
           {{{"id", 3},
             {"content", "<end>"},
             {"single_word", false},
             {"lstrip", false},
             {"rstrip", false},
             {"normalized", false},
             {"special", true}}}},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level_step(true)},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", json::array({"a b"})}}}};
}

GgufVocabulary read(const json& tokenizer, int64_t rows, const json& config = json::object()) {
  const TemporaryDirectory directory;
  write_atomically(directory / "tokenizer.json", tokenizer.dump());
  write_atomically(directory / "tokenizer_config.json", config.dump());
  return read_gguf_vocabulary(directory.path(), rows);
}

TEST(GgufVocabulary, BytesWithMergesAreGpt2) {
  const GgufVocabulary out = read(small_tokenizer(), 5, {{"eos_token", "<end>"}});
  EXPECT_EQ(out.model, "gpt2");
  EXPECT_EQ(out.pre, "gpt-2");
  EXPECT_EQ(out.tokens, (std::vector<std::string>{"a", "b", "ab", "<end>", "[PAD4]"}));
  EXPECT_EQ(out.types, (std::vector<int32_t>{1, 1, 1, 3, 5}));
  EXPECT_EQ(out.merges, std::vector<std::string>{"a b"});
  EXPECT_TRUE(out.scores.empty());
  EXPECT_EQ(out.eos, 3);
  EXPECT_EQ(out.bos, std::nullopt);
  EXPECT_FALSE(out.add_bos);
}

TEST(GgufVocabulary, ABosBeforeEveryTextIsStored) {
  json tokenizer = small_tokenizer();
  tokenizer["post_processor"] = json::parse(R"({"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<end>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [], "special_tokens": {"<end>": {"id": "<end>", "ids": [3], "tokens": ["<end>"]}}})");
  const GgufVocabulary out = read(tokenizer, 4, {{"bos_token", "<end>"}});
  EXPECT_EQ(out.bos, 3);
  EXPECT_TRUE(out.add_bos);
  EXPECT_FALSE(out.add_eos);
}

TEST(GgufVocabulary, WordsAreSplitByName) {
  json tokenizer = small_tokenizer();
  tokenizer["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, byte_level_step(true)}}};
  EXPECT_EQ(read(tokenizer, 4).pre, "smollm");
  const std::string llama3 =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", llama3}}}, {"behavior", "Isolated"}, {"invert", false}};
  tokenizer["pre_tokenizer"]["pretokenizers"] = {split, byte_level_step(false)};
  EXPECT_EQ(read(tokenizer, 4).pre, "smaug-bpe");
  tokenizer["model"]["ignore_merges"] = true;
  EXPECT_EQ(read(tokenizer, 4).pre, "llama-bpe");
}

// Phi-4-mini has the pattern of GPT-4o (tiktoken, o200k_base).
TEST(GgufVocabulary, PhisWordsAreThoseOfGpt4o) {
  json tokenizer = small_tokenizer();
  const std::string pattern =
      R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  tokenizer["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, byte_level_step(false)}}};
  EXPECT_EQ(read(tokenizer, 4).pre, "gpt-4o");
}

TEST(GgufVocabulary, AnUnknownWayToSplitIsRefused) {
  json tokenizer = small_tokenizer();
  tokenizer["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", false}}, byte_level_step(true)}}};
  EXPECT_TRUE(contains(error_message<FormatError>([&] { read(tokenizer, 4); }), "pre_tokenizer"));
}

TEST(GgufVocabulary, MoreIdsThanRowsAreRefused) {
  EXPECT_TRUE(contains(error_message<FormatError>([&] { read(small_tokenizer(), 3); }), "ids up to 3"));
}

// As Llama 2's tokenizer.json: scores must give back the order of the merges.
TEST(GgufVocabulary, MergesOfSentencePieceBecomeScores) {
  json vocab = {{"<unk>", 0}, {"<s>", 1},       {"</s>", 2},   {"<0x41>", 3}, {"\u2581a", 4},
                {"bb", 5},    {"\u2581abb", 6}, {"\u2581", 7}, {"a", 8},      {"b", 9}};
  json tokenizer = small_tokenizer();
  const auto added = [](int id, const char* content) {
    return json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  tokenizer["added_tokens"] = {added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")};
  tokenizer["normalizer"] = {
      {"type", "Sequence"},
      {"normalizers",
       {{{"type", "Prepend"}, {"prepend", "\u2581"}},
        {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}};
  tokenizer["pre_tokenizer"] = nullptr;
  tokenizer["decoder"] = {{"type", "Sequence"},
                          {"decoders",
                           {{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                            {{"type", "ByteFallback"}},
                            {{"type", "Fuse"}},
                            {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}};
  tokenizer["model"] = {{"type", "BPE"},    {"unk_token", "<unk>"},
                        {"fuse_unk", true}, {"byte_fallback", true},
                        {"vocab", vocab},   {"merges", {"\u2581 a", "b b", "\u2581a bb"}}};
  const GgufVocabulary out =
      read(tokenizer, 10, {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}});
  EXPECT_EQ(out.model, "llama");
  EXPECT_EQ(out.types, (std::vector<int32_t>{2, 3, 3, 6, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(out.scores[4], 0.0f);
  EXPECT_EQ(out.scores[5], -1.0f);
  EXPECT_EQ(out.scores[6], -2.0f);
  EXPECT_LT(out.scores[7], out.scores[6]);
  EXPECT_EQ(out.add_space_prefix, true);
  // Readers put a blank in front, which Gemma 4's do not.
  GgufVocabulary unchanged = out;
  make_gemma4(unchanged);
  EXPECT_EQ(unchanged.model, "llama");
  // Gemma's has no blank in front, and cuts at blanks, of which its normalizer leaves none.
  tokenizer["normalizer"] = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  tokenizer["pre_tokenizer"] = {{"type", "Split"},
                                {"pattern", {{"String", " "}}},
                                {"behavior", "MergedWithPrevious"},
                                {"invert", false}};
  tokenizer["added_tokens"].push_back(added(10, "<|channel>"));
  GgufVocabulary gemma = read(tokenizer, 11, {{"unk_token", "<unk>"}});
  EXPECT_EQ(gemma.add_space_prefix, false);
  EXPECT_EQ(gemma.types[10], static_cast<int32_t>(GgufTokenType::control));
  make_gemma4(gemma);
  EXPECT_EQ(gemma.model, "gemma4");
  EXPECT_EQ(gemma.merges, (std::vector<std::string>{"\u2581 a", "b b", "\u2581a bb"}));
  EXPECT_EQ(gemma.types[10], static_cast<int32_t>(GgufTokenType::user_defined));
}

TEST(GgufVocabulary, Qwen35sWordsKeepMarksWithTheirLetters) {
  json tokenizer = small_tokenizer();
  const std::string pattern =
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
  const json split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  tokenizer["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {split, byte_level_step(false)}}};
  EXPECT_EQ(read(tokenizer, 4).pre, "qwen35");
}

// As T5's tokenizer.json: pieces with scores, a table of characters, white space cut away.
json unigram_tokenizer() {
  json tokenizer = small_tokenizer();
  tokenizer["added_tokens"][0]["content"] = "</s>";
  tokenizer["added_tokens"][0]["id"] = 1;
  tokenizer["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "BAAAAAAAAAA="}};
  tokenizer["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "WhitespaceSplit"}},
        {{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}, {"split", true}}}}};
  tokenizer["decoder"] = {
      {"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "always"}, {"split", true}};
  tokenizer["post_processor"] = json::parse(R"({"type": "TemplateProcessing",
    "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
    "pair": [], "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}}})");
  tokenizer["model"] = {
      {"type", "Unigram"},
      {"unk_id", 2},
      {"vocab", json::parse(R"([["<pad>", 0], ["</s>", 0], ["<unk>", 0], ["\u2581", -2.0], ["a", -2.5]])")},
      {"byte_fallback", false}};
  return tokenizer;
}

TEST(GgufVocabulary, UnigramPiecesKeepTheirScores) {
  const GgufVocabulary out = read(unigram_tokenizer(), 7, {{"eos_token", "</s>"}, {"unk_token", "<unk>"}});
  EXPECT_EQ(out.model, "t5");
  EXPECT_EQ(out.pre, "default");
  EXPECT_EQ(out.tokens,
            (std::vector<std::string>{"<pad>", "</s>", "<unk>", "\u2581", "a", "[PAD5]", "[PAD6]"}));
  EXPECT_EQ(out.types[1], static_cast<int32_t>(GgufTokenType::control));
  EXPECT_EQ(out.types[2], static_cast<int32_t>(GgufTokenType::unknown));
  EXPECT_EQ(out.types[5], static_cast<int32_t>(GgufTokenType::unused));
  EXPECT_EQ(out.scores[3], -2.0f);
  EXPECT_EQ(out.scores[4], -2.5f);
  EXPECT_EQ(out.charsmap, (std::vector<uint8_t>{4, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(out.add_space_prefix, true);
  EXPECT_EQ(out.remove_extra_spaces, true);
  EXPECT_TRUE(out.add_eos);
  EXPECT_TRUE(out.merges.empty());
}

TEST(GgufVocabulary, StepsThatUnigramReadersDoNotHaveAreRefused) {
  json tokenizer = unigram_tokenizer();
  tokenizer["normalizer"] = {{"type", "Lowercase"}};
  const std::string message = error_message<FormatError>([&] { read(tokenizer, 7); });
  EXPECT_TRUE(contains(message, "normalizer Lowercase")) << message;
}

TEST(GgufVocabulary, ByT5sTokensAreBytesWithoutMerges) {
  const TemporaryDirectory directory;
  write_atomically(directory / "tokenizer_config.json", R"({"tokenizer_class": "ByT5Tokenizer"})");
  const GgufVocabulary out = read_gguf_vocabulary(directory.path(), 384);
  EXPECT_EQ(out.model, "gpt2");
  EXPECT_TRUE(out.merges.empty());
  EXPECT_EQ(out.tokens[1], "</s>");
  EXPECT_EQ(out.tokens[3 + 'A'], "A");
  EXPECT_EQ(out.tokens[3 + ' '], "\u0120");  // as GPT-2 writes it
  EXPECT_EQ(out.tokens[259], "<extra_id_0>");
  EXPECT_EQ(out.eos, 1);
  EXPECT_TRUE(out.add_eos);
}

}  // namespace
}  // namespace trainer
