// The chat templates that come with the program: they write all of a conversation, and end each answer.
#include <filesystem>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/text/chat_template.h"

#include "text/chat/template_fit.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

const std::map<std::string, std::string> kSpecials{{"bos_token", "<s>"}, {"eos_token", "</s>"}};

class ShippedTemplates : public testing::TestWithParam<std::string> {
 protected:
  ChatTemplate open() const {
    const auto file = std::filesystem::path(SOURCE_DIR) / "configs/chat_templates" / (GetParam() + ".jinja");
    return ChatTemplate({{"default", {read_file(file), file.string()}}}, kSpecials);
  }
};

TEST_P(ShippedTemplates, AllOfAConversationIsWrittenAndItsAnswersAreLearned) {
  const Json messages =
      Json::parse(R"([{"role": "system", "content": "SYSTEM"}, {"role": "user", "content": "FIRST"},
    {"role": "assistant", "content": null, "tool_calls": [{"type": "function",
      "function": {"name": "CALLED", "arguments": {"x": "GIVEN"}}}]},
    {"role": "tool", "content": "RESULT"}, {"role": "assistant", "content": "ANSWER"}])");
  const Json tools =
      Json::parse(R"([{"type": "function", "function": {"name": "CALLED", "description": "HELPS"}}])");
  const RenderedChat chat = open().render_with_answers(messages, tools);
  for (const char* word : {"SYSTEM", "FIRST", "CALLED", "GIVEN", "RESULT", "ANSWER", "HELPS"})
    EXPECT_NE(chat.text.find(word), std::string::npos) << word << " is missing in " << chat.text;
  ASSERT_EQ(chat.answers.size(), 2u);
  const auto learned = [&](size_t i) {
    return chat.text.substr(chat.answers[i].begin, chat.answers[i].end - chat.answers[i].begin);
  };
  EXPECT_NE(learned(0).find("GIVEN"), std::string::npos);
  EXPECT_EQ(learned(0).find("RESULT"), std::string::npos);
  EXPECT_TRUE(learned(1).starts_with("ANSWER") || learned(1).starts_with(" ANSWER")) << learned(1);
  EXPECT_FALSE(open().end_of_answer().empty());
}

TEST_P(ShippedTemplates, APromptIsTheBeginningOfItsAnswer) {
  const Json question = Json::parse(R"([{"role": "user", "content": "FIRST"}])");
  Json answered = question;
  answered.push_back({{"role", "assistant"}, {"content", "ANSWER"}});
  const std::string prompt = open().render(question, nullptr, {{"add_generation_prompt", true}});
  EXPECT_TRUE(open().render(answered).starts_with(prompt)) << prompt;
}

TEST_P(ShippedTemplates, FunctionsCallsAndResultsAreAmongTheirAbilities) {
  const ChatTemplate shipped = open();
  const ChatAbilities& able = shipped.abilities();
  EXPECT_TRUE(able.tools && able.calls && able.results);
}

INSTANTIATE_TEST_SUITE_P(All, ShippedTemplates,
                         testing::Values("chatml", "llama3", "gemma", "mistral", "bars", "plain"));

// Has some tokens, and is good for nothing else.
class TokensOnly : public Tokenizer {
 public:
  explicit TokensOnly(std::set<std::string> tokens) : tokens_(std::move(tokens)) {}
  std::vector<int32_t> encode(std::string_view, bool) const override { return {}; }
  TokenizedText encode_with_ranges(std::string_view, bool) const override { return {}; }
  std::string decode(std::span<const int32_t>, bool) const override { return ""; }
  int64_t vocab_size() const override { return 0; }
  std::optional<int32_t> token_to_id(std::string_view token) const override {
    return tokens_.contains(std::string(token)) ? std::optional(1) : std::nullopt;
  }
  std::optional<int32_t> eos_id() const override { return std::nullopt; }
  std::optional<int32_t> pad_id() const override { return std::nullopt; }
  std::optional<int32_t> unk_id() const override { return std::nullopt; }
  void add_tokens(const std::vector<std::string>&) override {}

 private:
  std::set<std::string> tokens_;
};

TEST(TemplateFit, FollowsFromTheTokensOfTheModel) {
  EXPECT_EQ(fitting_template(TokensOnly({"<|im_start|>", "<|im_end|>"})).name, "chatml");
  EXPECT_EQ(fitting_template(TokensOnly({"<|start_header_id|>", "<|eot_id|>"})).name, "llama3");
  EXPECT_EQ(fitting_template(TokensOnly({"<start_of_turn>", "<end_of_turn>"})).name, "gemma");
  EXPECT_EQ(fitting_template(TokensOnly({"</s>"})).name, "plain");
  EXPECT_NE(fitting_template(TokensOnly({"[INST]", "[/INST]"})).reason.find("[INST]"), std::string::npos);
}

}  // namespace
}  // namespace trainer
