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
  EXPECT_TRUE(out.merges.empty());
}

}  // namespace
}  // namespace trainer
