// Chat templates: a conversation to the text that a model was trained on, as the model's own Jinja template
// says. An interpreter of ours; what it gives equals Hugging Face's `apply_chat_template` (jinja2's
// ImmutableSandboxedEnvironment with trim_blocks and lstrip_blocks), character for character.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace trainer {

namespace jinja {
class Template;
}

// Safe to use from several threads at once.
class ChatTemplate {
 public:
  struct Source {
    std::string text;
    std::string where;  // opens messages: the file
  };

  // `sources` by name; "default" is used, or "tool_use" when tools are given and it is there.
  // `special_tokens` (bos_token, ...) are variables of every rendering. Throws FormatError "WHERE:LINE: ..."
  // when a template is no valid Jinja or has something that is not supported.
  ChatTemplate(const std::map<std::string, Source>& sources,
               std::map<std::string, std::string> special_tokens);

  // The text of a conversation: an array of objects with `role`, `content` and whatever else the template
  // reads. Keys that are null are dropped, and `reasoning_content`, `thinking` and `reasoning` stand for one
  // another, as in Hugging Face. `tools`: an array of JSON schemas, or null. `variables`: an object
  // (add_generation_prompt, enable_thinking, ...) or null; it goes before the special tokens. Throws
  // DataError "WHERE:LINE: ..." when the template refuses the conversation or cannot handle it, and
  // FormatError when it uses something of Python that is not supported.
  std::string render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools = nullptr,
                     const nlohmann::ordered_json& variables = nullptr) const;

 private:
  std::map<std::string, std::shared_ptr<const jinja::Template>> templates_;
  std::map<std::string, std::string> special_tokens_;
};

// The chat template of a model directory, or of an adapter directory (its own, else that of its base model):
// chat_template.jinja and additional_chat_templates/NAME.jinja, else `chat_template` in tokenizer_config.json
// (a text, or a list of {name, template}). None when there is no template. Throws FormatError that names file
// and line.
std::optional<ChatTemplate> load_chat_template(const std::filesystem::path& directory);
// The texts of the same templates by name ("default"); empty where there is none.
std::map<std::string, std::string> chat_template_texts(const std::filesystem::path& directory);

}  // namespace trainer
