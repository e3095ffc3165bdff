// Chat templates give the same text as Hugging Face (tests/goldens/text/chat, made by
// tests/make_goldens/chat).
#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/text/chat_template.h"
#include "trainer/text/conversation.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

std::filesystem::path chat_golden(const std::string& name) {
  return std::filesystem::path(SOURCE_DIR) / "tests/goldens/text/chat" / name;
}

Json chat_rows(const std::string& name) { return Json::parse(read_file(chat_golden(name))); }

// Returns the text, or null if the template is refused.
Json rendered(const std::string& source, const Json& messages, const Json& tools, const Json& variables) {
  try {
    return ChatTemplate({{"default", {source, "template"}}}, {}).render(messages, tools, variables);
  } catch (const Error&) {
    return nullptr;
  }
}

TEST(ChatGoldens, ConversationsRenderAsHuggingFaceRendersThem) {
  for (const Json& row : chat_rows("conversations.json")) {
    const std::string source = read_file(chat_golden(row["template"].get<std::string>()));
    EXPECT_EQ(rendered(source, row["messages"], row["tools"], row["variables"]), row["text"])
        << row["template"] << ": " << row["conversation"] << (row["tools"].is_null() ? "" : " with tools");
  }
}

// Rows of OpenAI and ShareGPT, with functions and contents in parts.
TEST(ChatGoldens, RowsOfDataSetsRenderAsHuggingFaceRendersWhatTheyMean) {
  const Json rows = chat_rows("rows.json");
  ASSERT_GE(rows.size(), 15U);
  for (const Json& golden : rows) {
    const ChatTemplate chat({{"default", {read_file(chat_golden(golden["template"])), "template"}}}, {});
    std::vector<std::string> fields;
    for (const auto& field : golden["row"].items()) fields.push_back(field.key());
    const Conversation row = read_conversation(golden["row"], *conversation_form(fields));
    ASSERT_TRUE(golden["text"].is_string()) << golden["what"];
    EXPECT_EQ(chat.render(messages_for(chat, row), row.tools, row.variables), golden["text"])
        << golden["template"] << ": " << golden["what"];
  }
}

TEST(ChatGoldens, EveryConstructGivesTheOutputOfJinja) {
  const Json given = chat_rows("construct_variables.json");
  for (const Json& row : chat_rows("constructs.json")) {
    EXPECT_EQ(rendered(row["template"], given["messages"], nullptr, given["variables"]), row["text"])
        << row["template"];
  }
}

}  // namespace
}  // namespace trainer
