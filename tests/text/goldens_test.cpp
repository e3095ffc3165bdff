// Ids and text equal those of Hugging Face (tests/goldens/text, made by tests/make_goldens/tokenizers).
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/files.h"
#include "trainer/text/tokenizer.h"

#include "support/temporary_directory.h"
#include "text/text_goldens.h"

namespace trainer {
namespace {

using Ids = std::vector<int32_t>;

nlohmann::json rows(const std::string& name, const char* file) {
  return nlohmann::json::parse(read_file(golden(name) / file));
}

class TokenizerGoldens : public ::testing::TestWithParam<const char*> {};

TEST_P(TokenizerGoldens, HardStringsGiveTheIdsOfHuggingFace) {
  const auto tokenizer = load_tokenizer(golden(GetParam()));
  for (const auto& row : rows(GetParam(), "encoded.json")) {
    const auto text = row["text"].get<std::string>();
    EXPECT_EQ(tokenizer->encode(text, true), row["ids"].get<Ids>()) << row["text"].dump(-1, ' ', true);
    EXPECT_EQ(tokenizer->encode(text, false), row["bare"].get<Ids>()) << row["text"].dump(-1, ' ', true);
  }
}

TEST_P(TokenizerGoldens, IdsGiveTheTextOfHuggingFace) {
  const auto tokenizer = load_tokenizer(golden(GetParam()));
  for (const char* file : {"encoded.json", "decoded.json"}) {
    for (const auto& row : rows(GetParam(), file)) {
      const auto ids = row["ids"].get<Ids>();
      EXPECT_EQ(tokenizer->decode(ids, false), row["decoded"].get<std::string>()) << row["ids"];
      EXPECT_EQ(tokenizer->decode(ids, true), row["skipped"].get<std::string>()) << row["ids"];
    }
  }
}

TEST_P(TokenizerGoldens, SeveralThreadsGetTheSameIds) {
  const auto tokenizer = load_tokenizer(golden(GetParam()));
  const auto expected = rows(GetParam(), "encoded.json");
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& count : wrong) {
    threads.emplace_back([&tokenizer, &expected, &count] {
      for (int round = 0; round < 3; round++) {
        for (const auto& row : expected) {
          if (tokenizer->encode(row["text"].get<std::string>(), true) != row["ids"].get<Ids>()) count++;
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

void expect_added(const Tokenizer& tokenizer, const nlohmann::json& expected) {
  EXPECT_EQ(tokenizer.vocab_size(), expected["size"]);
  for (const auto& row : expected["rows"]) {
    const auto ids = row["ids"].get<Ids>();
    EXPECT_EQ(tokenizer.encode(row["text"].get<std::string>(), true), ids) << row["text"];
    EXPECT_EQ(tokenizer.decode(ids, true), row["skipped"].get<std::string>()) << row["ids"];
  }
}

TEST_P(TokenizerGoldens, AddedTokensAreThoseOfHuggingFace) {
  const auto expected = rows(GetParam(), "added.json");
  const auto tokenizer = load_tokenizer(golden(GetParam()));
  tokenizer->add_tokens(expected["tokens"].get<std::vector<std::string>>());
  expect_added(*tokenizer, expected);
}

TEST_P(TokenizerGoldens, SavedFilesHaveTheAddedTokens) {
  const auto expected = rows(GetParam(), "added.json");
  const test::TemporaryDirectory saved;
  save_tokenizer(golden(GetParam()), expected["tokens"].get<std::vector<std::string>>(), saved.path());
  expect_added(*load_tokenizer(saved.path()), expected);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerGoldens,
                         ::testing::Values("qwen", "llama3", "gpt2", "smollm2", "llama2_v4", "llama2_v5",
                                           "gemma", "t5", "t5_json", "mt5_json", "byt5", "byt5_saved",
                                           "byt5_published"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace trainer
