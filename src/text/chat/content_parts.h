// Contents that are lists of parts: [{"type": "text", "text": "..."}].
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace trainer {

// Throws DataError for a part that is no text; it names the part and its type ("image_url").
void check_parts(const nlohmann::ordered_json& content, const std::string& where);

// Returns the text of a message's content; the parts of a list one after the other. "" if there is none.
std::string content_text(const nlohmann::ordered_json& message);

}  // namespace trainer
