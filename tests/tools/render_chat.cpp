// Used by tests/parity/chat_templates. Reads lines of {"template", "messages", "tools", "variables"} from
// stdin, and writes lines of {"text"} or {"error"} to stdout. "directory" (of a model) may replace
// "template". With "answers": true, it also writes which parts of the text a model learns.
#include <iostream>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/text/chat_template.h"

int main() {
  using Json = nlohmann::ordered_json;
  for (std::string line; std::getline(std::cin, line);) {
    const Json request = Json::parse(line);
    Json answer;
    try {
      const trainer::ChatTemplate chat =
          request.contains("directory")
              ? *trainer::load_chat_template(request["directory"].get<std::string>())
              : trainer::ChatTemplate({{"default", {request["template"], "template"}}}, {});
      if (request.value("answers", false)) {
        const auto chatted =
            chat.render_with_answers(request["messages"], request["tools"], request["variables"]);
        answer["text"] = chatted.text;
        answer["answers"] = Json::array();
        for (const auto& part : chatted.answers)
          answer["answers"].push_back({{"message", part.message},
                                       {"text", chatted.text.substr(part.begin, part.end - part.begin)},
                                       {"begin", part.begin},
                                       {"end", part.end}});
      } else {
        answer["text"] = chat.render(request["messages"], request["tools"], request["variables"]);
      }
    } catch (const trainer::Error& error) {
      answer["error"] = error.what();
      answer["code"] = static_cast<int>(error.code());
    }
    std::cout << answer.dump() << '\n';
  }
}
