#include "text/chat/roles.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "base/text.h"
#include "base/warn_once.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

struct Synonym {
  std::string_view name, role;
};
// Of ShareGPT, OASST, Gemini, LLaMA-Factory and others.
constexpr std::array<Synonym, 18> kSynonyms{{{"human", "user"},
                                             {"prompter", "user"},
                                             {"gpt", "assistant"},
                                             {"chatgpt", "assistant"},
                                             {"bot", "assistant"},
                                             {"chatbot", "assistant"},
                                             {"model", "assistant"},
                                             {"ai", "assistant"},
                                             {"llm", "assistant"},
                                             {"agent", "assistant"},
                                             {"observation", "tool"},
                                             {"tool_response", "tool"},
                                             {"tool_result", "tool"},
                                             {"function", "tool"},
                                             {"function_response", "tool"},
                                             // In capitals they are these, too:
                                             {"user", "user"},
                                             {"assistant", "assistant"},
                                             {"system", "system"}}};

constexpr std::array<std::string_view, 6> kRoles{"system", "user",      "assistant",
                                                 "tool",   "developer", "ipython"};

constexpr const char* kKnown =
    "known are user (human, prompter), assistant (gpt, bot, chatbot, model, ai, agent), system, developer, "
    "and "
    "tool (function, observation, tool_response), and those that the chat template names";

}  // namespace

std::string role_named(const std::string& name) {
  const std::string small = lower_case(name);
  const auto synonym = std::ranges::find(kSynonyms, small, &Synonym::name);
  return synonym == kSynonyms.end() ? name : std::string(synonym->role);
}

void refuse_unknown_roles(const Conversation& conversation, const ChatTemplate* chat_template,
                          LossOn loss_on) {
  if (loss_on == LossOn::everything) return;
  bool has_answer = false;
  for (const Json& message : conversation.messages) has_answer |= message["role"] == "assistant";
  for (size_t i = 0; i < conversation.messages.size(); i++) {
    const std::string role = conversation.messages[i]["role"];
    if (std::ranges::find(kRoles, role) != kRoles.end()) continue;
    if (chat_template != nullptr && chat_template->reads(role)) continue;
    const std::string text = concat("the role \"", one_line(role, 60), "\" is not known; ", kKnown);
    if (!has_answer) throw DataError(concat("message ", i + 1, ": ", text));
    warn_once(concat("data: ", text, "; such messages are not learned"));
  }
}

}  // namespace trainer
