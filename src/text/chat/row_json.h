// Reads the JSON of a row that holds a conversation. All throw DataErrors that name the place `where`.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace trainer {

// Returns the value of a key; nullptr if it is missing or null.
const nlohmann::ordered_json* value_of(const nlohmann::ordered_json& object, const char* key);

// "a number", "an object", "null"
std::string type_text(const nlohmann::ordered_json& value);

// Returns the text of a key. Throws if it is missing or no text.
std::string required_text(const nlohmann::ordered_json& object, const char* key, const std::string& where);

// Parses JSON that is a text in a row. Returns nullopt if it is not JSON.
std::optional<nlohmann::ordered_json> parsed_text(const std::string& text, const std::string& where);

// Returns why a text is not JSON, in brackets; "" if it is not known.
std::string why_not_json(const std::string& text);

// Returns a list, or the list whose JSON is the text `value`; null for a blank text. `name`: what it is.
nlohmann::ordered_json list_of(const nlohmann::ordered_json& value, const std::string& name);

// Contents that are lists of parts: [{"type": "text", "text": "..."}].

// Throws DataError for a part that is no text; it names the part and its type ("image_url").
void check_parts(const nlohmann::ordered_json& content, const std::string& where);

// Returns the text of a message's content; the parts of a list one after the other. "" if there is none.
std::string content_text(const nlohmann::ordered_json& message);

}  // namespace trainer
