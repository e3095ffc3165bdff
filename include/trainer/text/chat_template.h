// Chat templates turn a conversation into the text format that a model was trained on, with the model's own
// Jinja template. The interpreter is our own; its output equals that of Hugging Face's `apply_chat_template`
// (jinja2's ImmutableSandboxedEnvironment with trim_blocks and lstrip_blocks), character for character.
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
struct Moment;
}  // namespace jinja
struct AnswerFrame;
struct ReasoningTags;

// A conversation's text, and which parts of it are answers, which the model should learn to write.
struct RenderedChat {
  struct Answer {
    size_t message;     // its place in the conversation
    size_t begin, end;  // bytes of the text
    // The end of the block of reasoning that it begins with (<think> ... </think>); `begin` if it has none.
    size_t after_reasoning = 0;
    bool empty_reasoning = false;  // only the template writes that block, around nothing
  };
  std::string text;
  std::vector<Answer> answers;  // in the order of the text
};

// The parts of a conversation that a template writes, besides contents that are text.
struct ChatAbilities {
  bool parts = false;            // contents that are lists of parts, as text
  bool calls = true;             // the tool_calls of an answer
  bool results = true;           // messages of the role tool
  bool tools = true;             // the functions that may be called
  bool empty_reasoning = false;  // an empty block of reasoning, for an answer that has none
};

// Safe to use from several threads at once.
class ChatTemplate {
 public:
  struct Source {
    std::string text;
    std::string where;  // the file; error messages start with it
  };

  // `sources` are templates by name: "default" is used, or "tool_use" if it exists and tools are given.
  // `special_tokens` (bos_token, ...) are variables of every rendering. Throws FormatError "WHERE:LINE: ..."
  // when a template is not valid Jinja or uses something that is not supported.
  ChatTemplate(const std::map<std::string, Source>& sources,
               std::map<std::string, std::string> special_tokens);

  // Returns the text of a conversation. `messages` is an array of objects with `role`, `content` and whatever
  // else the template reads. As in Hugging Face, keys that are null are dropped, and `reasoning_content`,
  // `thinking` and `reasoning` are aliases. `tools` is an array of JSON schemas, or null. `variables` is an
  // object (add_generation_prompt, enable_thinking, ...) or null; it overrides the special tokens. Throws
  // DataError "WHERE:LINE: ..." when the template refuses the conversation or cannot handle it, and
  // FormatError when it uses something of Python that is not supported.
  std::string render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools = nullptr,
                     const nlohmann::ordered_json& variables = nullptr) const;

  // Returns the same text with the ranges of the answers, one for each assistant message that is rendered. An
  // answer begins after its generation prompt ("<|im_start|>assistant\n"; a think block or a tool call that
  // the template writes there belongs to the answer). It ends with the end of the turn ("<|im_end|>"), which
  // is included, but not the line break after it. The interpreter tracks which message each character comes
  // from, so nothing in the conversation's own text can be mistaken for a border. If the template has
  // {% generation %}, that decides what is learned. Throws like render(), and also DataError when the answers
  // of this template cannot be told from the rest.
  RenderedChat render_with_answers(const nlohmann::ordered_json& messages,
                                   const nlohmann::ordered_json& tools = nullptr,
                                   const nlohmann::ordered_json& variables = nullptr) const;

  // Returns what the template writes after an answer ("<|im_end|>"); "" if it writes nothing. A question and
  // its answer are rendered to find it. Throws DataError if the template refuses them or its answers cannot
  // be told from the rest, and FormatError as render() does.
  std::string end_of_answer() const;

  // Returns what the template writes; small examples are rendered to find it. Where the template refuses
  // the example, calls, results and tools are true: the template decides for each conversation.
  const ChatAbilities& abilities() const;

  // Sets the day that strftime_now() tells the template, "2026-05-31", with the time 00:00. Without it, that
  // is the time at which this object was made: texts do not change while a program runs. Throws ConfigError
  // when there is no such day.
  void set_date(const std::string& day);
  // Returns that day if a template asks for the date, so that its texts may depend on it; else "".
  std::string date() const;

  // Returns whether a template reads the key of a message: `.key`, or "key" in quotes.
  bool reads(const std::string& key) const;

  // All that a rendering depends on besides the conversation and the date: the templates and the special
  // tokens.
  std::string source() const;

 private:
  struct Frames;
  const jinja::Template& choose(bool with_tools) const;
  jinja::Text render_text(const jinja::Value& messages, const nlohmann::ordered_json& tools,
                          const nlohmann::ordered_json& variables, bool ask) const;
  AnswerFrame frame(const nlohmann::ordered_json& tools, const nlohmann::ordered_json& variables) const;
  ReasoningTags reasoning_tags(const nlohmann::ordered_json& tools,
                               const nlohmann::ordered_json& variables) const;

  std::map<std::string, std::shared_ptr<const jinja::Template>> templates_;
  std::map<std::string, std::string> special_tokens_;
  std::shared_ptr<const jinja::Moment> moment_;
  std::shared_ptr<Frames> frames_;  // computed when first needed
};

// Loads the chat template of a model directory, or of an adapter directory (its own, else that of its base
// model): chat_template.jinja and additional_chat_templates/NAME.jinja, else `chat_template` in
// tokenizer_config.json (a string, or a list of {name, template}). Returns nullopt when there is no template.
// Throws a FormatError that names file and line.
std::optional<ChatTemplate> load_chat_template(const std::filesystem::path& directory);
// Loads the user's own template from `file`, with the special tokens of such a directory. Throws the same.
ChatTemplate read_chat_template(const std::filesystem::path& file, const std::filesystem::path& directory);
// Returns the day that it is here, "2026-05-31".
std::string today();
// Returns whether the directory itself has a template, without its base model.
bool has_chat_template(const std::filesystem::path& directory);
// The texts of the templates of load_chat_template() by name ("default"); empty when there is none.
std::map<std::string, std::string> chat_template_texts(const std::filesystem::path& directory);

}  // namespace trainer
