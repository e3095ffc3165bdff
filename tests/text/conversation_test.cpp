// Conversations in the formats of common data sets, and which parts of them are learned.
#include "trainer/text/conversation.h"

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"

#include "formats/json_file.h"
#include "support/error_message.h"
#include "text/chat/roles.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;
using Json = nlohmann::ordered_json;

Conversation read(const char* row) {
  const Json json = Json::parse(row);
  std::vector<std::string> names;
  for (const auto& entry : json.items()) names.push_back(entry.key());
  return read_conversation(json, *conversation_form(names));
}
std::string problem(const char* row) {
  return error_message<DataError>([&] { read(row); });
}

TEST(Conversations, MessagesAreTakenAsTheyAre) {
  const Conversation read_in = read(R"({"messages": [{"role": "user", "content": "q", "name": "Bo"},
    {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}]})");
  EXPECT_EQ(read_in.messages[0]["name"], "Bo");
  EXPECT_EQ(read_in.messages[1]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_TRUE(read_in.tools.is_null());
}

TEST(Conversations, ShareGptIsTranslated) {
  const Conversation read_in =
      read(R"({"system": "Be kind", "conversations": [{"from": "human", "value": "q"},
    {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
    {"from": "observation", "value": "22"}, {"from": "gpt", "value": "a"}],
    "tools": "[{\"name\": \"f\"}]"})");
  EXPECT_EQ(read_in.messages, Json::parse(R"([{"role": "system", "content": "Be kind"},
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "", "tool_calls": [{"type": "function",
      "function": {"name": "f", "arguments": {"x": 1}}}]},
    {"role": "tool", "content": "22"}, {"role": "assistant", "content": "a"}])"));
  EXPECT_EQ(read_in.tools, Json::parse(R"([{"type": "function", "function": {"name": "f"}}])"));
}

TEST(Conversations, RolesByOtherNamesAreUnderstood) {
  const Conversation read_in = read(R"({"messages": [{"role": "human", "content": "q"},
    {"role": "gpt", "content": "a"}, {"role": "Human", "content": "q"}, {"role": "model", "content": "a"},
    {"from": "user", "value": "q"}, {"from": "ai", "value": "a"}, {"role": "bot", "value": "a"},
    {"role": "observation", "content": "22"}]})");
  std::vector<std::string> roles;
  for (const Json& message : read_in.messages) roles.push_back(message["role"]);
  EXPECT_EQ(roles, (std::vector<std::string>{"user", "assistant", "user", "assistant", "user", "assistant",
                                             "assistant", "tool"}));
  EXPECT_EQ(read_in.messages[5], Json::parse(R"({"role": "assistant", "content": "a"})"));
  EXPECT_EQ(read_in.messages[6]["content"], "a");
}

TEST(Conversations, AListInATableIsJson) {
  const Conversation read_in = read(R"({"messages": "[{\"role\": \"gpt\", \"content\": \"a\"}]"})");
  EXPECT_EQ(read_in.messages[0]["role"], "assistant");
}

TEST(Conversations, UnknownRolesAreRefusedWithThoseThatAreKnown) {
  const Conversation odd = read(R"({"messages": [{"role": "user", "content": "q"},
    {"role": "asistant", "content": "a"}]})");
  const std::string message =
      error_message<DataError>([&] { refuse_unknown_roles(odd, nullptr, LossOn::all_turns); });
  EXPECT_TRUE(message.starts_with("message 2: the role \"asistant\" is not known; known are user (human"))
      << message;
  EXPECT_NO_THROW(refuse_unknown_roles(odd, nullptr, LossOn::everything));
  const Conversation answered = read(R"({"messages": [{"role": "critic", "content": "q"},
    {"role": "assistant", "content": "a"}]})");
  EXPECT_NO_THROW(refuse_unknown_roles(answered, nullptr, LossOn::all_turns));
  const ChatTemplate names_it({{"default", {"{% if messages[0].role == 'asistant' %}{% endif %}", "t"}}}, {});
  EXPECT_NO_THROW(refuse_unknown_roles(odd, &names_it, LossOn::all_turns));
}

TEST(Conversations, PartsThatAreNoTextAreRefusedByName) {
  EXPECT_EQ(
      problem(R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "q"},
              {"type": "image_url", "image_url": {"url": "x"}}]}]})"),
      "message 1 (user): part 2 of \"content\" has the type \"image_url\"; only \"text\" can be learned "
      "from: remove the part, or leave such rows out (data.bad_rows: skip)");
  EXPECT_EQ(problem(R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})"),
            "message 1 (user): part 1 of \"content\" has no \"text\"");
}

TEST(Conversations, ArgumentsThatAreNoObjectAreRefused) {
  EXPECT_EQ(
      problem(R"({"messages": [{"role": "assistant", "content": null,
              "tool_calls": [{"function": {"name": "f", "arguments": "x = 1"}}]}]})"),
      "message 1 (assistant): the \"arguments\" of the call of \"f\" are a text that is not a JSON object");
}

TEST(Conversations, AlpacaIsAQuestionAndAnAnswer) {
  EXPECT_EQ(
      read(R"({"instruction": "Add", "input": "1 2", "output": "3"})").messages,
      Json::parse(R"([{"role": "user", "content": "Add\n1 2"}, {"role": "assistant", "content": "3"}])"));
  EXPECT_EQ(read(R"({"instruction": "Sing", "input": "", "output": "la", "history": [["a", "b"]]})").messages,
            Json::parse(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                            {"role": "user", "content": "Sing"}, {"role": "assistant", "content": "la"}])"));
}

TEST(Conversations, WeightsAreRemovedFromTheMessages) {
  const Conversation read_in = read(R"({"messages": [{"role": "user", "content": "q"},
    {"role": "assistant", "content": "a", "weight": 0}, {"role": "assistant", "content": "b", "weight": 0.5}]})");
  EXPECT_EQ(read_in.weights, (std::vector<float>{1, 0, 0.5}));
  EXPECT_FALSE(read_in.messages[1].contains("weight"));
}

TEST(Conversations, ErrorsNameTheMessage) {
  EXPECT_EQ(problem(R"({"messages": []})"), "\"messages\" is an empty list");
  EXPECT_EQ(problem(R"({"messages": "hi"})"), "\"messages\" is a string, not a list");
  EXPECT_EQ(problem(R"({"messages": [{"role": "user", "content": "q"}, "a"]})"),
            "message 2 is a string, not an object");
  EXPECT_EQ(problem(R"({"messages": [{"content": "q"}]})"), "message 1 has no \"role\"");
  EXPECT_EQ(problem(R"({"messages": [{"role": 1, "content": "q"}]})"),
            "message 1: \"role\" is a number, not text");
  EXPECT_EQ(problem(R"({"messages": [{"role": "user"}]})"), "message 1 (user) has no \"content\"");
  EXPECT_EQ(problem(R"({"messages": [{"role": "user", "content": 5}]})"),
            "message 1 (user): \"content\" is a number, not text or a list of parts");
  EXPECT_EQ(problem(R"({"messages": [{"role": "assistant", "content": null}]})"),
            "message 1 (assistant): \"content\" is null, and there are no \"tool_calls\"");
  EXPECT_EQ(
      problem(R"({"messages": [{"role": "assistant", "content": "a", "weight": -0.5}]})"),
      "message 1 (assistant): \"weight\" is -0.5; it must be a number from 0 (not learned) to 1,000,000");
  EXPECT_EQ(
      problem(R"({"messages": [{"role": "assistant", "content": "a", "weight": true}]})"),
      "message 1 (assistant): \"weight\" is true; it must be a number from 0 (not learned) to 1,000,000");
  EXPECT_EQ(
      problem(R"({"conversations": [{"from": "alien", "value": "q"}]})"),
      "message 1: \"from\" is \"alien\"; known are human, gpt, system, function_call, observation and tool");
  EXPECT_EQ(problem(R"({"messages": [{"role": "user", "content": "q"}], "tools": "none"})"),
            "\"tools\" is a text that is not JSON");
  EXPECT_EQ(problem(R"({"instruction": "Add", "output": 3})"), "the row: \"output\" is a number, not text");
}

TEST(Conversations, IntegersBeyond64BitsInJsonThatIsTextAreRefused) {
  EXPECT_EQ(problem(R"({"messages": [{"role": "user", "content": "a"}],
                        "tools": "[{\"most\": 99999999999999999999}]"})"),
            "\"tools\" has the integer 99999999999999999999, which is beyond 64 bits; write it as "
            "a string, in quotes");
  EXPECT_EQ(problem(R"({"conversations": [{"from": "function_call",
                        "value": "{\"name\": \"f\", \"arguments\": [-99999999999999999999]}"}]})"),
            "message 1 has the integer -99999999999999999999, which is beyond 64 bits; write it as "
            "a string, in quotes");
}

TEST(Conversations, MessagesAndToolsWithVeryManyKeysAreReadInLinearTime) {
  constexpr int kKeys = 200'000;
  OrderedObject message, tool;
  for (int i = 0; i < kKeys; i++) {
    message.set(concat("k", i), i);
    tool.set(concat("k", i), i);
  }
  message.set("from", "human");
  message.set("value", "q");
  const Json row{{"conversations", Json::array({message.take()})},
                 {"tools", Json::array({tool.take()}).dump()}};
  const Conversation read_in = read_conversation(row, ConversationForm::conversations);
  EXPECT_EQ(read_in.messages[0].size(), kKeys + size_t{2});
  EXPECT_EQ(read_in.messages[0]["k199999"], 199'999);
  EXPECT_EQ(read_in.tools[0].size(), static_cast<size_t>(kKeys));
}

class LearnedTokens : public ::testing::Test {
 protected:
  // What is learned, as text.
  std::string learned(const char* row, LossOn loss_on = LossOn::all_turns) const {
    const ChatTokens chat = tokenize_chat(template_, *tokenizer_, read(row), loss_on);
    std::vector<int32_t> ids;
    for (size_t i = 0; i < chat.ids.size(); i++) {
      if (chat.learn[i]) ids.push_back(chat.ids[i]);
    }
    EXPECT_EQ(chat.ids, tokenizer_->encode(chat.text, false));
    return tokenizer_->decode(ids, false);
  }

  const std::unique_ptr<Tokenizer> tokenizer_ =
      load_tokenizer(std::filesystem::path(SOURCE_DIR) / "tests/goldens/text/qwen");
  const ChatTemplate template_{{{"default",
                                 {"{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + "
                                  "'<|im_end|>\\n' }}{% endfor %}"
                                  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
                                  "t.jinja"}}},
                               {}};
};

constexpr const char* kTwoTurnsRow = R"({"messages": [{"role": "user", "content": "q1"},
  {"role": "assistant", "content": "a1"}, {"role": "user", "content": "q2"},
  {"role": "assistant", "content": "a2"}, {"role": "user", "content": "q3"}]})";

TEST_F(LearnedTokens, AreTheAnswersAndTheirEnds) {
  EXPECT_EQ(learned(kTwoTurnsRow), "a1<|im_end|>a2<|im_end|>");
}

TEST_F(LearnedTokens, AreThoseOfTheLastTurnAlone) {
  EXPECT_EQ(learned(kTwoTurnsRow, LossOn::last_turn), "a2<|im_end|>");
}

TEST_F(LearnedTokens, AreAllOfThem) {
  EXPECT_EQ(learned(kTwoTurnsRow, LossOn::everything),
            "<|im_start|>user\nq1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n"
            "<|im_start|>user\nq2<|im_end|>\n<|im_start|>assistant\na2<|im_end|>\n"
            "<|im_start|>user\nq3<|im_end|>\n");
}

TEST_F(LearnedTokens, AreNotThoseOfAMessageWithWeight0) {
  EXPECT_EQ(learned(R"({"messages": [{"role": "user", "content": "q1"},
    {"role": "assistant", "content": "a1", "weight": 0}, {"role": "user", "content": "q2"},
    {"role": "assistant", "content": "a2", "weight": 1}]})"),
            "a2<|im_end|>");
}

TEST_F(LearnedTokens, TheLastQuestionEndsInTheGenerationPrompt) {
  const auto question = last_question(template_, read(kTwoTurnsRow));
  ASSERT_TRUE(question);
  EXPECT_TRUE(question->prompt.ends_with("q2<|im_end|>\n<|im_start|>assistant\n"));
  EXPECT_EQ(question->answer, "a2");
  EXPECT_FALSE(last_question(template_, read(R"({"messages": [{"role": "user", "content": "q"}]})")));
}

// The template of these tests writes contents and nothing else.
TEST_F(LearnedTokens, CallsThatTheTemplateDoesNotWriteAreRefusedWithTheRemedy) {
  const auto refused = [&](const char* row) { return error_message<DataError>([&] { learned(row); }); };
  constexpr const char* kRemedies =
      "; give a template that writes them (data.chat_template: FILE), or leave such rows out (data.bad_rows: "
      "skip)";
  EXPECT_EQ(
      refused(R"({"conversations": [{"from": "human", "value": "q"},
              {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {}}"}]})"),
      concat("message 2 calls a function, and the chat template does not write calls (tool_calls), so the "
             "answer would be empty",
             kRemedies));
  EXPECT_EQ(
      refused(R"({"messages": [{"role": "user", "content": "q"}], "tools": [{"name": "f"}]})"),
      concat("the row has functions (\"tools\"), and the chat template does not write them", kRemedies));
}

TEST_F(LearnedTokens, PartsAreTextWhereTheTemplateReadsOnlyText) {
  EXPECT_EQ(learned(R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant",
              "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]})"),
            "ab<|im_end|>");
}

TEST_F(LearnedTokens, ACallIsLearnedAsTheTemplateWritesIt) {
  const ChatTemplate with_calls(
      {{"default",
        {read_file(std::filesystem::path(SOURCE_DIR) / "tests/goldens/text/chat/calls.jinja"),
         "calls.jinja"}}},
      {});
  const Conversation row = read(R"({"conversations": [{"from": "human", "value": "q"},
      {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
      {"from": "observation", "value": "22"}, {"from": "bot", "value": "a"}], "tools": "[{\"name\": \"f\"}]"})");
  const ChatTokens chat = tokenize_chat(with_calls, *tokenizer_, row, LossOn::all_turns);
  std::vector<int32_t> ids;
  for (size_t i = 0; i < chat.ids.size(); i++) {
    if (chat.learn[i]) ids.push_back(chat.ids[i]);
  }
  EXPECT_EQ(tokenizer_->decode(ids, false),
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call><|im_end|>a<|im_end|>");
}

TEST_F(LearnedTokens, ACallIsTheAnswerThatEvaluationExpects) {
  const ChatTemplate with_calls(
      {{"default",
        {read_file(std::filesystem::path(SOURCE_DIR) / "tests/goldens/text/chat/calls.jinja"),
         "calls.jinja"}}},
      {});
  const auto question = last_question(with_calls, read(R"({"conversations": [{"from": "human", "value": "q"},
      {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {}}"}]})"));
  ASSERT_TRUE(question);
  EXPECT_EQ(question->answer, "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>");
}

std::string why_no_end(const std::string& source) {
  const auto tokenizer = load_tokenizer(std::filesystem::path(SOURCE_DIR) / "tests/goldens/text/qwen");
  return why_no_end_is_learned(ChatTemplate({{"default", {source, "t.jinja"}}}, {}), *tokenizer);
}
constexpr const char* kAsk = "{% if add_generation_prompt %}assistant: {% endif %}";

TEST(EndOfAnswers, ATemplateThatWritesNoEndTokenIsNamed) {
  const auto turns = [](const std::string& end) {
    return "{% for m in messages %}{{ m.role + ': ' + m.content + '" + end + "' }}{% endfor %}" + kAsk;
  };
  EXPECT_EQ(why_no_end(turns("<|im_end|>\\n")), "");
  EXPECT_EQ(why_no_end(turns(" <|im_end|>")), "") << "behind a blank";
  const std::string nothing = why_no_end(turns("\\n"));
  EXPECT_TRUE(contains(nothing, "writes nothing after an answer: the model does not learn to stop"))
      << nothing;
  EXPECT_TRUE(contains(nothing, "{{ eos_token }}")) << nothing;
  const std::string plain = why_no_end(turns(" [END]\\n"));
  EXPECT_TRUE(contains(plain, "ends an answer with \" [END]\", which is ordinary text (")) << plain;
  EXPECT_TRUE(contains(plain, "no end token is learned")) << plain;
  EXPECT_TRUE(contains(plain, "model.add_tokens")) << plain;
}

TEST(EndOfAnswers, MarksOfATemplateMayLeaveItOut) {
  const auto marked = [](const std::string& before, const std::string& behind) {
    return "{% for m in messages %}{{ m.role + ': ' }}{% generation %}{{ m.content }}" + before +
           "{% endgeneration %}" + behind + "{% endfor %}" + kAsk;
  };
  EXPECT_EQ(why_no_end(marked("<|im_end|>", "")), "");
  const std::string left_out = why_no_end(marked("", "<|im_end|>"));
  EXPECT_TRUE(contains(left_out, "{% generation %} leaves out the end of an answer")) << left_out;
}

}  // namespace
}  // namespace trainer
