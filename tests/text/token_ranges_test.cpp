// Where tokens come from in the text. tests/parity/training compares the ranges with the offsets of
// `tokenizers`.
#include <algorithm>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/files.h"
#include "trainer/text/tokenizer.h"

#include "text/text_goldens.h"

namespace trainer {
namespace {

class TokenRanges : public ::testing::TestWithParam<const char*> {
 protected:
  const std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer(golden(GetParam()));
};

TEST_P(TokenRanges, BelongToTheIdsOfEncode) {
  for (const auto& row : nlohmann::json::parse(read_file(golden(GetParam()) / "encoded.json"))) {
    const auto text = row["text"].get<std::string>();
    for (const bool special : {true, false}) {
      const TokenizedText tokenized = tokenizer_->encode_with_ranges(text, special);
      EXPECT_EQ(tokenized.ids, tokenizer_->encode(text, special)) << row["text"].dump(-1, ' ', true);
      ASSERT_EQ(tokenized.ranges.size(), tokenized.ids.size());
    }
  }
}

TEST_P(TokenRanges, LieInOrderAndAtTheBordersOfCharacters) {
  for (const auto& row : nlohmann::json::parse(read_file(golden(GetParam()) / "encoded.json"))) {
    const auto text = row["text"].get<std::string>();
    const auto is_border = [&](size_t at) {
      return at == text.size() || (static_cast<unsigned char>(text[at]) & 0xc0) != 0x80;
    };
    TextRange before{0, 0};
    for (const TextRange& range : tokenizer_->encode_with_ranges(text, true).ranges) {
      EXPECT_LE(range.begin, range.end);
      EXPECT_LE(before.begin, range.begin) << row["text"].dump(-1, ' ', true);
      EXPECT_LE(before.end, range.end) << row["text"].dump(-1, ' ', true);
      ASSERT_LE(range.end, text.size());
      EXPECT_TRUE(is_border(range.begin) && is_border(range.end)) << row["text"].dump(-1, ' ', true);
      before = range;
    }
  }
}

TEST_P(TokenRanges, OfPlainWordsAreTheWords) {
  const std::string text = "The cook stirs 12 eggs, again.";
  const TokenizedText tokenized = tokenizer_->encode_with_ranges(text, false);
  size_t end = 0;
  for (size_t i = 0; i < tokenized.ids.size(); i++) {
    const auto [begin, behind] = tokenized.ranges[i];
    std::string token = tokenizer_->decode({&tokenized.ids[i], 1}, false);
    std::string part = text.substr(begin, behind - begin);
    for (std::string* side : {&token, &part}) std::erase(*side, ' ');
    if (token.empty()) continue;  // a space, or one that was added in front
    EXPECT_LE(end, begin);
    EXPECT_EQ(text.substr(end, begin - end).find_first_not_of(' '), std::string::npos)
        << "nothing is left out";
    EXPECT_EQ(token, part);
    end = behind;
  }
  EXPECT_EQ(end, text.size());
}

INSTANTIATE_TEST_SUITE_P(Kinds, TokenRanges,
                         ::testing::Values("qwen", "gpt2", "llama3", "smollm2", "llama2_v4", "llama2_v5",
                                           "t5", "t5_json", "mt5_json"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TokenRangesOfParts, ASplitCharacterBelongsToEachOfItsTokens) {
  const auto tokenizer = load_tokenizer(golden("qwen"));
  const std::string text = "a\U0001f469b";
  const TokenizedText tokenized = tokenizer->encode_with_ranges(text, false);
  ASSERT_GT(tokenized.ids.size(), 3u);
  for (size_t i = 1; i + 1 < tokenized.ids.size(); i++) {
    EXPECT_EQ(tokenized.ranges[i].begin, 1u);
    EXPECT_EQ(tokenized.ranges[i].end, 5u);
  }
}

TEST(TokenRangesOfParts, RangesPointIntoTheTextBeforeNormalization) {
  const auto tokenizer = load_tokenizer(golden("qwen"));
  const std::string text = "<|im_end|>e\u0301<|im_end|>";  // NFC makes one character of it
  const TokenizedText tokenized = tokenizer->encode_with_ranges(text, false);
  EXPECT_EQ(tokenized.ranges.front().end, 10u);
  EXPECT_EQ(tokenized.ranges[1].begin, 10u);
  EXPECT_EQ(tokenized.ranges[1].end, 13u);
  EXPECT_EQ(tokenized.ranges.back().begin, 13u);
}

TEST(TokenRangesOfParts, AddedTokensHaveEmptyRanges) {
  const TokenizedText tokenized = load_tokenizer(golden("t5"))->encode_with_ranges("soup", true);
  EXPECT_EQ(tokenized.ranges.back().begin, 4u);
  EXPECT_EQ(tokenized.ranges.back().end, 4u);
  EXPECT_EQ(tokenized.ranges.front().begin, 0u);
}

}  // namespace
}  // namespace trainer
