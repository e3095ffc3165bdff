// The reasoning of answers, and whether it is learned.
#include <filesystem>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/text/conversation.h"

namespace trainer {
namespace {

Conversation with_block(const char* row) {
  return read_conversation(nlohmann::ordered_json::parse(row), ConversationForm::messages);
}

// A think block for every last answer, as Qwen3 writes it.
const ChatTemplate& thinking() {
  static const ChatTemplate with_blocks(
      {{"default",
        {"{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
         "{% if m.role == 'assistant' and loop.last %}{{ '<think>\\n' + (m.reasoning_content or '') + "
         "'\\n</think>\\n\\n' }}{% endif %}"
         "{{ m.content }}{% for c in m.tool_calls or [] %}{{ '<call>' + c.function.name }}{% endfor %}"
         "{{ '<|im_end|>\\n' }}{% endfor %}"
         "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
         "{% if enable_thinking is defined and not enable_thinking %}{{ '<think>\\n\\n</think>\\n\\n' }}"
         "{% endif %}{% endif %}",
         "t.jinja"}}},
      {});
  return with_blocks;
}

class LearnedReasoning : public ::testing::Test {
 protected:
  std::string of(const ChatTemplate& chat_template, const char* row, BoolOrAuto learn) const {
    const ChatTokens chat =
        tokenize_chat(chat_template, *tokenizer_, with_block(row), LossOn::all_turns, learn);
    std::vector<int32_t> ids;
    for (size_t i = 0; i < chat.ids.size(); i++) {
      if (chat.learn[i]) ids.push_back(chat.ids[i]);
    }
    return tokenizer_->decode(ids, false);
  }
  std::string of(const char* row, BoolOrAuto learn = BoolOrAuto::automatic()) const {
    return of(thinking(), row, learn);
  }

  const std::unique_ptr<Tokenizer> tokenizer_ =
      load_tokenizer(std::filesystem::path(SOURCE_DIR) / "tests/goldens/text/qwen");
};

constexpr const char* kPlain = R"({"messages": [{"role": "user", "content": "q"},
    {"role": "assistant", "content": "a", "reasoning_content": ""}]})";
constexpr const char* kReasoned = R"({"messages": [{"role": "user", "content": "q"},
    {"role": "assistant", "content": "a", "reasoning_content": "hm"}]})";

TEST_F(LearnedReasoning, IsNotTheEmptyBlockOfATemplate) {
  EXPECT_EQ(of(kPlain), "a<|im_end|>");
  EXPECT_EQ(of(kPlain, true), "<think>\n\n</think>\n\na<|im_end|>");
  EXPECT_EQ(of(kPlain, false), "a<|im_end|>");
  EXPECT_EQ(of(kReasoned), "<think>\nhm\n</think>\n\na<|im_end|>");
  EXPECT_EQ(of(kReasoned, false), "a<|im_end|>");
  EXPECT_EQ(
      of(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "  a"}]})"),
      "  a<|im_end|>")
      << "the answer's own blanks";
}

TEST_F(LearnedReasoning, IsABlockThatTheConversationItselfHas) {
  const ChatTemplate plain({{"default",
                             {"{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + "
                              "'<|im_end|>\\n' }}{% endfor %}"
                              "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
                              "t.jinja"}}},
                           {});
  EXPECT_EQ(of(plain, R"({"messages": [{"role": "user", "content": "q"},
                              {"role": "assistant", "content": "<think>\n\n</think>\n\na"}]})",
               BoolOrAuto::automatic()),
            "<think>\n\n</think>\n\na<|im_end|>");
}

TEST_F(LearnedReasoning, IsFoundAlsoWhereTheTemplateReadsNoneAndWhereThePromptOpensIt) {
  const auto with = [](const std::string& block, const std::string& prompt) {
    return ChatTemplate({{"default",
                          {"{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
                           "{% if m.role == 'assistant' %}{{ '" +
                               block +
                               "' }}{% endif %}{{ m.content + '<|im_end|>\\n' }}"
                               "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n" +
                               prompt + "' }}{% endif %}",
                           "t.jinja"}}},
                        {});
  };
  for (const char* block : {"<think></think>\\n", "[THINK][/THINK]", "\\n<seed:think>\\n</seed:think>"})
    EXPECT_EQ(of(with(block, ""), kPlain, BoolOrAuto::automatic()), "a<|im_end|>") << block;
  EXPECT_EQ(of(with("<think>\\n\\n</think>\\n\\n", "<think>\\n"), kPlain, BoolOrAuto::automatic()),
            "a<|im_end|>");
  EXPECT_EQ(of(with("<b></b>", ""), kPlain, BoolOrAuto::automatic()), "<b></b>a<|im_end|>");
}

TEST_F(LearnedReasoning, ThatIsNotLearnedIsInThePromptOfAnEvaluation) {
  constexpr const char* kBlock = "<|im_start|>assistant\n<think>\n\n</think>\n\n";
  EXPECT_TRUE(last_question(thinking(), with_block(kPlain))->prompt.ends_with(kBlock));
  EXPECT_TRUE(
      last_question(thinking(), with_block(kPlain), true)->prompt.ends_with("<|im_start|>assistant\n"));
  EXPECT_TRUE(last_question(thinking(), with_block(kReasoned))->prompt.ends_with("<|im_start|>assistant\n"));
  const auto call = last_question(thinking(), with_block(R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}]})"));
  EXPECT_TRUE(call->prompt.ends_with(kBlock));
  EXPECT_EQ(call->answer, "<call>f");
  const auto asked = last_question(thinking(), with_block(R"({"messages": [{"role": "user", "content": "q"},
      {"role": "assistant", "content": "a"}], "chat_template_kwargs": {"enable_thinking": false}})"));
  EXPECT_TRUE(asked->prompt.ends_with(std::string("q<|im_end|>\n") + kBlock)) << asked->prompt;
}

}  // namespace
}  // namespace trainer
