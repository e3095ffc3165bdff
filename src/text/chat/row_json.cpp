#include "text/chat/row_json.h"

#include <algorithm>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "formats/json_file.h"
#include "formats/json_problem.h"
#include "text/tokenizer/json_reader.h"

namespace trainer {

using Json = nlohmann::ordered_json;

const Json* value_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string type_text(const Json& value) {
  const std::string name = value.type_name();
  if (value.is_null()) return name;
  return concat(name.find_first_of("ao") == 0 ? "an " : "a ", name);
}

std::string required_text(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) throw DataError(concat(where, " has no \"", key, "\""));
  if (!found->is_string())
    throw DataError(concat(where, ": \"", key, "\" is ", type_text(*found), ", not text"));
  return *found;
}

std::optional<Json> parsed_text(const std::string& text, const std::string& where) {
  if (nested_too_deep(text)) throw DataError(concat(where, " is nested too deep"));
  std::optional<Json> value;
  try {
    value = parse_ordered_json(text);
  } catch (const Json::exception&) {
    return std::nullopt;
  }
  if (const auto large = integer_beyond_64_bits(text))
    throw DataError(concat(where, " has the integer ", *large,
                           ", which is beyond 64 bits; write it as a string, in quotes"));
  return value;
}

std::string why_not_json(const std::string& text) {
  const size_t first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  if (first == text.size() || (text[first] != '{' && text[first] != '[')) return "";
  const std::string problem = json_problem(text, JsonEnd::text);
  return problem.empty() ? "" : concat(" (", problem, ")");
}

Json list_of(const Json& value, const std::string& name) {
  Json list = value;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    if (text.find_first_not_of(" \t\r\n") == std::string::npos) return nullptr;
    std::optional<Json> parsed = parsed_text(text, name);
    if (!parsed) throw DataError(concat(name, " is a text that is not JSON", why_not_json(text)));
    list = std::move(*parsed);
  }
  if (!list.is_array()) throw DataError(concat(name, " is ", type_text(list), ", not a list"));
  return list;
}

void check_parts(const Json& content, const std::string& where) {
  for (size_t i = 0; i < content.size(); i++) {
    const Json& part = content[i];
    const std::string what = concat(where, ": part ", i + 1, " of \"content\"");
    if (!part.is_object()) throw DataError(concat(what, " is ", type_text(part), ", not an object"));
    const Json* type = value_of(part, "type");
    const bool is_text = !type || *type == "text";
    if (!is_text) {
      throw DataError(concat(what, " has the type ", one_line(type->dump(), 60),
                             "; only \"text\" can be learned from: remove the part, or leave such rows out "
                             "(data.bad_rows: skip)"));
    }
    const Json* text = value_of(part, "text");
    if (!text || !text->is_string()) throw DataError(concat(what, " has no \"text\""));
  }
}

std::string content_text(const Json& message) {
  const Json* content = value_of(message, "content");
  if (!content) return "";
  if (content->is_string()) return *content;
  std::string text;
  for (const Json& part : *content) text += part["text"].get_ref<const std::string&>();
  return text;
}

}  // namespace trainer
