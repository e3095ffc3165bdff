#include "text/chat/abilities.h"

#include <algorithm>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

// Words that no template has in itself.
constexpr const char *kAsked = "Qquestionq", *kAnswered = "Aanswera", *kCalled = "ccallc",
                     *kResult = "Rresultr";

// Letters that no template changes: a name is written as it is, whatever surrounds it.
const Json& example_tool() {
  static const Json tool = Json::parse(R"({"type": "function", "function": {"name": "ccallc",
    "description": "d", "parameters": {"type": "object", "properties": {}, "required": []}}})");
  return tool;
}

std::optional<std::string> rendered(const ChatTemplate& chat_template, const Json& messages,
                                    const Json& tools) {
  try {
    return chat_template.render(messages, tools);
  } catch (const Error&) {  // not this example
    return std::nullopt;
  }
}

bool holds(const std::string& text, const char* word) { return text.find(word) != std::string::npos; }

// A list that is written as Python or JSON prints it was not read.
bool is_printed(const std::string& text) { return holds(text, "'type'") || holds(text, "\"type\""); }

Json said_in_parts(const char* role, const char* text) {
  return {{"role", role}, {"content", Json::array({{{"type", "text"}, {"text", text}}})}};
}

Json said_as_text(const char* role, const char* text) { return {{"role", role}, {"content", text}}; }

// A question, a call of `ccallc`, its result and an answer. `content`: that of the call.
Json example_of_a_call(const Json& content) {
  const Json arguments = Json::object();
  Json call{{"role", "assistant"}};
  if (!content.is_null()) call["content"] = content;
  call["tool_calls"] = Json::array({{{"id", "call00001"},
                                     {"type", "function"},
                                     {"function", {{"name", kCalled}, {"arguments", arguments}}}}});
  const Json result{{"role", "tool"}, {"name", "n"}, {"tool_call_id", "call00001"}, {"content", kResult}};
  return Json::array(
      {said_as_text("user", kAsked), std::move(call), result, said_as_text("assistant", kAnswered)});
}

bool writes_empty_reasoning(const ChatTemplate& chat_template) {
  const Json example = Json::array({said_as_text("user", kAsked), said_as_text("assistant", kAnswered)});
  try {
    return std::ranges::any_of(chat_template.render_with_answers(example).answers,
                               &RenderedChat::Answer::empty_reasoning);
  } catch (const Error&) {  // not this example
    return false;
  }
}

}  // namespace

ChatAbilities find_abilities(const ChatTemplate& chat_template) {
  ChatAbilities found;
  const auto parts = rendered(
      chat_template, Json::array({said_in_parts("user", kAsked), said_in_parts("assistant", kAnswered)}), {});
  found.parts = parts && holds(*parts, kAsked) && holds(*parts, kAnswered) && !is_printed(*parts);
  const Json tools = Json::array({example_tool()});
  const auto asked = rendered(chat_template, Json::array({said_as_text("user", kAsked)}), tools);
  found.tools = !asked || holds(*asked, kCalled);
  for (const Json& content : {Json(""), Json()}) {
    // Without tools, because these are written with the name of the function too.
    const auto called = rendered(chat_template, example_of_a_call(content), {});
    if (!called) continue;
    found.calls = holds(*called, kCalled);
    found.results = holds(*called, kResult);
    break;
  }
  found.empty_reasoning = writes_empty_reasoning(chat_template);
  return found;
}

}  // namespace trainer
