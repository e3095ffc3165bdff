// JSON files whose top level is an object.
#pragma once

#include <filesystem>

#include <nlohmann/json.hpp>

namespace trainer {

// Throws FormatError (file:line:column for a syntax error) when it cannot be read or is no JSON object.
nlohmann::json read_json_object(const std::filesystem::path& path);
nlohmann::ordered_json read_ordered_json_object(
    const std::filesystem::path& path);  // keeps the order of the keys

// Writes it atomically, indented by two blanks and ended by a newline, as the Hugging Face libraries do.
void write_json(const std::filesystem::path& path, const nlohmann::json& value);
void write_json(const std::filesystem::path& path, const nlohmann::ordered_json& value);

}  // namespace trainer
