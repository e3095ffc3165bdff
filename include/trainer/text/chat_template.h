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
class Text;
class Value;
}  // namespace jinja
struct AnswerFrame;

// A conversation's text and what of it is answers: what a model is to learn to write.
struct RenderedChat {
  struct Answer {
    size_t message;     // its place in the conversation
    size_t begin, end;  // bytes of the text
  };
  std::string text;
  std::vector<Answer> answers;  // in the order of the text
};

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

  // The same text with the places of the answers, one for each assistant's message that is rendered: from the
  // end of what its generation prompt would be ("<|im_start|>assistant\n"; a think block or a tool call that
  // the template writes there belongs to the answer) to what ends the turn ("<|im_end|>"), which is in it,
  // without the line break after that. The interpreter knows of each character which message it comes from,
  // so nothing in the conversation's own text can be mistaken for a border. A template with {% generation %}
  // has said itself what is to be learnt, and that is taken. Throws besides DataError where the answers of
  // this template cannot be told from the rest.
  RenderedChat render_with_answers(const nlohmann::ordered_json& messages,
                                   const nlohmann::ordered_json& tools = nullptr,
                                   const nlohmann::ordered_json& variables = nullptr) const;

  // What the template writes behind an answer ("<|im_end|>"); "" where that cannot be told, or is nothing.
  std::string end_of_answer() const;

  // All that renderings depend on beside what is rendered: the templates and the special tokens.
  std::string source() const;

 private:
  struct Frames;
  const jinja::Template& choose(bool with_tools) const;
  jinja::Text render_text(const jinja::Value& messages, const nlohmann::ordered_json& tools,
                          const nlohmann::ordered_json& variables, bool ask) const;
  AnswerFrame frame(const nlohmann::ordered_json& tools, const nlohmann::ordered_json& variables) const;

  std::map<std::string, std::shared_ptr<const jinja::Template>> templates_;
  std::map<std::string, std::string> special_tokens_;
  std::shared_ptr<Frames> frames_;  // found when they are first asked for
};

// The chat template of a model directory, or of an adapter directory (its own, else that of its base model):
// chat_template.jinja and additional_chat_templates/NAME.jinja, else `chat_template` in tokenizer_config.json
// (a text, or a list of {name, template}). None when there is no template. Throws FormatError that names file
// and line.
std::optional<ChatTemplate> load_chat_template(const std::filesystem::path& directory);
// A template of the user's own, in a file, for the special tokens of such a directory. Throws the same.
ChatTemplate read_chat_template(const std::filesystem::path& file, const std::filesystem::path& directory);
// The texts of the same templates by name ("default"); empty where there is none.
std::map<std::string, std::string> chat_template_texts(const std::filesystem::path& directory);

}  // namespace trainer
