// JSON files whose top level is an object.
#pragma once

#include <filesystem>
#include <string>

#include <nlohmann/json.hpp>

namespace trainer {

// Parses a file's text. Throws FormatError (`where`:line:column for a syntax error) when it is not a JSON
// object, or is nested deeper than any file of a model. For json and ordered_json, which keeps the order of
// the keys; both take linear time.
template <class Json>
Json parse_json_object(const std::string& text, const std::string& where);

// Throws FormatError also when the file cannot be read.
nlohmann::json read_json_object(const std::filesystem::path& path);
nlohmann::ordered_json read_ordered_json_object(const std::filesystem::path& path);

// Returns the text of `value` in ASCII; invalid UTF-8 becomes U+FFFD. indent: -1 for one line.
std::string ascii_json(const nlohmann::ordered_json& value, int indent);

// Writes it atomically, indented by two spaces and with a newline at the end, as the Hugging Face libraries
// do.
void write_json(const std::filesystem::path& path, const nlohmann::json& value);
void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& value);

}  // namespace trainer
