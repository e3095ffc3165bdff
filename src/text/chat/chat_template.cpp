#include "trainer/text/chat_template.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <mutex>
#include <optional>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/formats/peft.h"

#include "base/not_text.h"
#include "base/text.h"
#include "text/chat/abilities.h"
#include "text/chat/answer_spans.h"
#include "text/chat/reasoning.h"
#include "text/jinja/json.h"
#include "text/jinja/moment.h"
#include "text/jinja/template.h"
#include "text/tokenizer/json_reader.h"
#include "text/tokenizer/special_tokens.h"

namespace trainer {

namespace fs = std::filesystem;
using jinja::Kind;
using jinja::Origin;
using jinja::Value;
namespace {

using Json = nlohmann::ordered_json;

using Variables = std::vector<std::pair<std::string, Value>>;

// Where the first whole number above those of 64 bits with a sign is, as "[0].id"; nullopt: nowhere.
std::optional<std::string> place_of_large(const Json& json) {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (json.is_number_unsigned()) return json.get<uint64_t>() > kMost ? std::optional("") : std::nullopt;
  if (!json.is_structured()) return std::nullopt;
  size_t index = 0;
  for (const auto& [key, value] : json.items()) {
    if (const auto within = place_of_large(value))
      return concat(json.is_array() ? concat("[", index, "]") : concat(".", key), *within);
    index++;
  }
  return std::nullopt;
}

// `key`: what has the value, in its message or in the row.
Value to_value(const Json& json, std::string_view key, Origin origin = {}) {
  try {
    return jinja::from_json(json, origin);
  } catch (const jinja::Unsupported& error) {
    const std::string message = origin.has_message() ? concat("message ", origin.message() + 1, ": ") : "";
    throw DataError(concat(message, "\"", one_line(concat(key, place_of_large(json).value_or("")), 200),
                           "\" has ", error.what(),
                           " a template cannot use it: write it as a string, in quotes"));
  } catch (const jinja::RenderError& error) {
    throw DataError(concat("the conversation cannot be given to a chat template: ", error.what()));
  }
}

// Drops keys that are null, and puts a message's reasoning under all names that templates read.
Value message_value(const Json& message, size_t index) {
  if (!message.is_object())
    throw DataError(concat("message ", index + 1, " of the conversation is not an object"));
  jinja::Dict dict;
  dict.set_message(index);
  std::optional<Value> reasoning;
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto found = message.find(name);
    if (found == message.end() || found->is_null()) continue;
    reasoning = to_value(*found, name, Origin(index, Origin::Part::said));
    dict.set("thinking", *reasoning);
    break;
  }
  for (const auto& [key, value] : message.items()) {
    const Origin origin(index, key == "role" ? Origin::Part::role : Origin::Part::said);
    if (!value.is_null()) dict.set(jinja::text_value(key), to_value(value, key, origin));
  }
  if (reasoning) dict.set("reasoning_content", *std::move(reasoning));
  return Value(std::move(dict));
}

Value conversation_value(const Json& messages) {
  if (!messages.is_array() || messages.empty())
    throw DataError("a conversation is a list of messages, with one at least");
  jinja::List out;
  for (size_t i = 0; i < messages.size(); i++) out.push_back(message_value(messages[i], i));
  return Value(std::move(out));
}

// The indices of the assistant's messages.
std::vector<size_t> answers_in(const Json& messages) {
  std::vector<size_t> places;
  for (size_t i = 0; i < messages.size(); i++) {
    const auto role = messages[i].find("role");
    if (role != messages[i].end() && *role == "assistant") places.push_back(i);
  }
  return places;
}

// An arbitrary function, for templates that write other prompts when there are tools.
const Json& example_tools() {
  static const Json tools = Json::parse(R"([{"type": "function", "function": {"name": "f", "description": "f",
    "parameters": {"type": "object", "properties": {}, "required": []}}}])");
  return tools;
}

void set(Variables& variables, const std::string& name, Value value) {
  for (auto& [known, old] : variables) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

bool is_name_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::map<std::string, ChatTemplate::Source> jinja_files(const fs::path& directory) {
  std::map<std::string, ChatTemplate::Source> out;
  const auto add = [&](const std::string& name, const fs::path& file) {
    out[name] = {read_text(file), file.string()};
  };
  if (const fs::path file = directory / "chat_template.jinja"; fs::exists(file)) add("default", file);
  const fs::path more = directory / "additional_chat_templates";
  if (fs::is_directory(more)) {
    for (const auto& entry : fs::directory_iterator(more)) {
      if (entry.path().extension() == ".jinja") add(entry.path().stem().string(), entry.path());
    }
  }
  return out;
}

std::map<std::string, ChatTemplate::Source> configured_templates(const fs::path& directory) {
  std::map<std::string, ChatTemplate::Source> out;
  const fs::path file = directory / "tokenizer_config.json";
  if (!fs::exists(file)) return out;
  const nlohmann::json json = read_json(file);
  const JsonAt entry = JsonAt{json, file.string() + ":"}.get("chat_template");
  if (entry.is_null()) return out;
  if (entry.value.is_string()) {
    out["default"] = {entry.string(), entry.where};
    return out;
  }
  for (size_t i = 0; i < entry.array().size(); i++) {
    const JsonAt item = entry.item(i);
    out[item.at("name").string()] = {item.at("template").string(), item.at("template").where};
  }
  return out;
}

// The special tokens of a model directory, or of an adapter directory.
std::map<std::string, std::string> tokens_of(const fs::path& directory) {
  const bool has_own = fs::exists(directory / "tokenizer_config.json");
  return read_special_tokens(has_own ? directory : base_directory(directory)).by_name;
}

std::map<std::string, ChatTemplate::Source> own_templates(const fs::path& directory) {
  auto sources = jinja_files(directory);
  return sources.empty() ? configured_templates(directory) : sources;
}

}  // namespace

struct ChatTemplate::Frames {
  std::mutex mutex;
  // The key is whether there are tools, and the variables.
  std::map<std::pair<bool, std::string>, AnswerFrame> found;
  std::map<std::pair<bool, std::string>, ReasoningTags> reasoning;
  std::once_flag abilities_found;
  ChatAbilities abilities;
};

ChatTemplate::ChatTemplate(const std::map<std::string, Source>& sources,
                           std::map<std::string, std::string> special_tokens)
    : special_tokens_(std::move(special_tokens)),
      moment_(std::make_shared<jinja::Moment>(jinja::Moment::now())),
      frames_(std::make_shared<Frames>()) {
  for (const auto& [name, source] : sources)
    templates_[name] = std::make_shared<const jinja::Template>(source.text, source.where);
}

const jinja::Template& ChatTemplate::choose(bool with_tools) const {
  auto chosen = with_tools ? templates_.find("tool_use") : templates_.end();
  if (chosen == templates_.end()) chosen = templates_.find("default");
  if (chosen == templates_.end())
    throw FormatError("the model has several chat templates, and none is named 'default'");
  return *chosen->second;
}

jinja::Text ChatTemplate::render_text(const Value& messages, const Json& tools, const Json& variables,
                                      bool ask) const {
  Variables all;
  for (const auto& [name, token] : special_tokens_) set(all, name, jinja::text_value(token));
  set(all, "documents", Value());
  set(all, "add_generation_prompt", Value(ask));
  if (!variables.is_null()) {
    for (const auto& [name, value] : variables.items()) set(all, name, to_value(value, name));
  }
  set(all, "messages", messages);
  set(all, "tools", to_value(tools, "tools"));
  return choose(!tools.is_null()).render(all, *moment_);
}

std::string ChatTemplate::render(const Json& messages, const Json& tools, const Json& variables) const {
  return render_text(conversation_value(messages), tools, variables, /*ask=*/false).bytes();
}

RenderedChat ChatTemplate::render_with_answers(const Json& messages, const Json& tools,
                                               const Json& variables) const {
  const jinja::Text text = render_text(conversation_value(messages), tools, variables, /*ask=*/false);
  const jinja::Template& chosen = choose(!tools.is_null());
  RenderedChat rendered;
  if (chosen.has_generation()) {
    rendered.answers = generated_answers(text);
    for (RenderedChat::Answer& answer : rendered.answers) answer.after_reasoning = answer.begin;
  } else {
    const std::vector<size_t> answers = answers_in(messages);
    const auto asked = [&](size_t message) {
      try {
        const Json before(messages.begin(), messages.begin() + static_cast<std::ptrdiff_t>(message));
        return render_text(conversation_value(before), tools, variables, /*ask=*/true).bytes();
      } catch (const DataError&) {
        return std::string();
      }
    };
    try {
      if (!answers.empty())
        rendered.answers = find_answers(text, messages.size(), answers, frame(tools, variables), asked);
      find_reasoning(text, messages, reasoning_tags(tools, variables), rendered.answers);
    } catch (const DataError& error) {
      throw DataError(
          concat(chosen.where(),
                 ": the answers of the assistant cannot be found in this chat template: ", error.what(),
                 "; mark it in the template with {% generation %} and {% endgeneration %}, or learn "
                 "everything (data.loss_on: everything)"));
    }
  }
  rendered.text = text.bytes();
  return rendered;
}

std::string ChatTemplate::end_of_answer() const { return frame(nullptr, nullptr).end; }

const ChatAbilities& ChatTemplate::abilities() const {
  std::call_once(frames_->abilities_found, [&] { frames_->abilities = find_abilities(*this); });
  return frames_->abilities;
}

void ChatTemplate::set_date(const std::string& day) {
  moment_ = std::make_shared<jinja::Moment>(jinja::Moment::of_day(day));
  frames_ = std::make_shared<Frames>();
}

std::string ChatTemplate::date() const {
  const auto asks = [](const auto& named) { return named.second->asks_clock(); };
  return std::ranges::any_of(templates_, asks) ? moment_->day() : "";
}

bool ChatTemplate::reads(const std::string& key) const {
  const auto names = [&key](const std::string& source, const std::string& before) {
    for (size_t at = source.find(before + key); at != std::string::npos;
         at = source.find(before + key, at + 1)) {
      const size_t end = at + before.size() + key.size();
      const char after = end < source.size() ? source[end] : ' ';
      if (before == "." ? !is_name_character(after) : after == before[0]) return true;
    }
    return false;
  };
  return std::ranges::any_of(templates_, [&](const auto& named) {
    const std::string& source = named.second->source();
    return names(source, ".") || names(source, "'") || names(source, "\"");
  });
}

std::string ChatTemplate::source() const {
  std::string all;
  for (const auto& [name, token] : special_tokens_) all += concat(name, " ", token, "\n");
  for (const auto& [name, parsed] : templates_) all += concat(name, "\n", parsed->source(), "\n");
  return all;
}

// The frame does not depend on the conversation, so any will do.
AnswerFrame ChatTemplate::frame(const Json& tools, const Json& variables) const {
  constexpr const char *kQuestion = "Who are you?", *kAnswer = "Nobody you know.";
  const auto find_with = [&](const Json& question, const Json& answer) {
    const Json& given = tools.is_null() ? tools : example_tools();
    Json messages{{{"role", "user"}, {"content", question}}, {{"role", "assistant"}, {"content", answer}}};
    const jinja::Text answered = render_text(conversation_value(messages), given, variables, /*ask=*/false);
    messages.erase(1);
    return find_answer_frame(
        answered, render_text(conversation_value(messages), given, variables, /*ask=*/true).bytes());
  };
  const auto find = [&] {
    try {
      return find_with(kQuestion, kAnswer);
    } catch (const DataError& error) {  // some templates accept only contents in parts
      const auto parts = [](const char* text) { return Json::array({{{"type", "text"}, {"text", text}}}); };
      try {
        return find_with(parts(kQuestion), parts(kAnswer));
      } catch (const DataError&) {
        throw DataError(error.what());
      }
    }
  };
  const std::pair key(!tools.is_null(), variables.dump());
  const std::lock_guard lock(frames_->mutex);
  auto found = frames_->found.find(key);
  if (found == frames_->found.end()) found = frames_->found.emplace(key, find()).first;
  return found->second;
}

// Like the frame, the tags do not depend on the conversation.
ReasoningTags ChatTemplate::reasoning_tags(const Json& tools, const Json& variables) const {
  const std::pair key(!tools.is_null(), variables.dump());
  {
    const std::lock_guard lock(frames_->mutex);
    const auto found = frames_->reasoning.find(key);
    if (found != frames_->reasoning.end()) return found->second;
  }
  const auto find = [&]() -> ReasoningTags {
    static const Json messages = Json::parse(R"([{"role": "user", "content": "Qquestionq"},
      {"role": "assistant", "content": "Aanswera", "reasoning_content": "Rreasonedr"}])");
    try {
      const jinja::Text text = render_text(
          conversation_value(messages), tools.is_null() ? tools : example_tools(), variables, /*ask=*/false);
      const auto answers =
          find_answers(text, 2, {1}, frame(tools, variables), [](size_t) { return std::string(); });
      if (answers.empty()) return {};
      return find_reasoning_tags(text.bytes(), answers.front().begin, messages[1]["reasoning_content"],
                                 messages[1]["content"]);
    } catch (const Error&) {  // not this example
      return {};
    }
  };
  ReasoningTags tags = find();
  const std::lock_guard lock(frames_->mutex);
  return frames_->reasoning.emplace(key, std::move(tags)).first->second;
}

std::optional<ChatTemplate> load_chat_template(const fs::path& directory) {
  const auto sources = own_templates(directory);
  if (!sources.empty()) return ChatTemplate(sources, tokens_of(directory));
  const fs::path base = base_directory(directory);
  return base == directory ? std::nullopt : load_chat_template(base);
}

ChatTemplate read_chat_template(const fs::path& file, const fs::path& directory) {
  return ChatTemplate({{"default", {read_text(file), file.string()}}}, tokens_of(directory));
}

std::string today() { return jinja::Moment::now().day(); }
bool has_chat_template(const fs::path& directory) { return !own_templates(directory).empty(); }

std::map<std::string, std::string> chat_template_texts(const fs::path& directory) {
  auto sources = own_templates(directory);
  if (sources.empty()) sources = own_templates(base_directory(directory));
  std::map<std::string, std::string> texts;
  for (const auto& [name, source] : sources) texts[name] = source.text;
  return texts;
}

}  // namespace trainer
