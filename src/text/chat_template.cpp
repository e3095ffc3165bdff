#include "trainer/text/chat_template.h"

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/strings.h"
#include "trainer/formats/peft.h"

#include "text/jinja/json.h"
#include "text/jinja/template.h"
#include "text/json_reader.h"
#include "text/special_tokens.h"

namespace trainer {
namespace fs = std::filesystem;
using jinja::Kind;
using jinja::Value;
using Json = nlohmann::ordered_json;

namespace {

using Variables = std::vector<std::pair<std::string, Value>>;

// Without the keys that are null, and with a message's reasoning under the names that templates read.
Json prepared_message(const Json& message, size_t index) {
  if (!message.is_object())
    throw DataError(concat("message ", index + 1, " of the conversation is no object"));
  Json kept = Json::object();
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) kept[key] = value;
  }
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (!kept.contains(name)) continue;
    const Json reasoning = kept[name];
    Json out = Json::object();
    out["thinking"] = reasoning;
    for (const auto& [key, value] : kept.items()) out[key] = value;
    out["reasoning_content"] = reasoning;
    return out;
  }
  return kept;
}

Json prepared_messages(const Json& messages) {
  if (!messages.is_array() || messages.empty())
    throw DataError("a conversation is a list of messages, with one at least");
  Json out = Json::array();
  for (size_t i = 0; i < messages.size(); i++) out.push_back(prepared_message(messages[i], i));
  return out;
}

Value to_value(const Json& json) {
  try {
    return jinja::from_json(json);
  } catch (const jinja::Unsupported& error) {
    throw DataError(concat("the conversation has ", error.what(), " which is not supported"));
  }
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

std::map<std::string, ChatTemplate::Source> jinja_files(const fs::path& directory) {
  std::map<std::string, ChatTemplate::Source> out;
  const auto add = [&](const std::string& name, const fs::path& file) {
    out[name] = {read_file(file), file.string()};
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

std::map<std::string, ChatTemplate::Source> own_templates(const fs::path& directory) {
  auto sources = jinja_files(directory);
  return sources.empty() ? configured_templates(directory) : sources;
}

}  // namespace

ChatTemplate::ChatTemplate(const std::map<std::string, Source>& sources,
                           std::map<std::string, std::string> special_tokens)
    : special_tokens_(std::move(special_tokens)) {
  for (const auto& [name, source] : sources)
    templates_[name] = std::make_shared<const jinja::Template>(source.text, source.where);
}

std::string ChatTemplate::render(const Json& messages, const Json& tools, const Json& variables) const {
  auto chosen = tools.is_null() ? templates_.end() : templates_.find("tool_use");
  if (chosen == templates_.end()) chosen = templates_.find("default");
  if (chosen == templates_.end())
    throw FormatError("the model has several chat templates, and none is named 'default'");
  Variables all;
  for (const auto& [name, token] : special_tokens_) set(all, name, jinja::text_value(token));
  set(all, "documents", Value());
  set(all, "add_generation_prompt", Value(false));
  if (!variables.is_null()) {
    for (const auto& [name, value] : variables.items()) set(all, name, to_value(value));
  }
  set(all, "messages", to_value(prepared_messages(messages)));
  set(all, "tools", to_value(tools));
  return chosen->second->render(all).bytes();
}

std::optional<ChatTemplate> load_chat_template(const fs::path& directory) {
  const auto sources = own_templates(directory);
  const fs::path base = base_directory(directory);
  if (sources.empty()) return base == directory ? std::nullopt : load_chat_template(base);
  const bool has_own_tokens = fs::exists(directory / "tokenizer_config.json");
  return ChatTemplate(sources, read_special_tokens(has_own_tokens ? directory : base).by_name);
}

std::map<std::string, std::string> chat_template_texts(const fs::path& directory) {
  auto sources = own_templates(directory);
  if (sources.empty()) sources = own_templates(base_directory(directory));
  std::map<std::string, std::string> texts;
  for (const auto& [name, source] : sources) texts[name] = source.text;
  return texts;
}

}  // namespace trainer
