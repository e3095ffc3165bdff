// Brings functions and their calls into the form that chat templates read: that of OpenAI, with the arguments
// as an object.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace trainer {

// Returns the calls of a list, each as {"type": "function", "function": {"name", "arguments"}}. Also reads
// calls without that frame, and arguments that are the text of a JSON object, as OpenAI writes them. Throws
// DataError that names the call.
nlohmann::ordered_json tool_calls_of(nlohmann::ordered_json calls, const std::string& where);

// Puts the calls of a message in place: `tool_calls` (a list or its JSON text), or OpenAI's earlier
// `function_call`; the role `function` becomes `tool`. Throws DataError.
void normalize_calls(nlohmann::ordered_json& message, const std::string& where);

// Returns the functions of `tools` (a list or its JSON text), each as {"type": "function", "function":
// {...}}; null if there are none. Throws DataError.
nlohmann::ordered_json tools_of(const nlohmann::ordered_json& tools, const std::string& name);

}  // namespace trainer
