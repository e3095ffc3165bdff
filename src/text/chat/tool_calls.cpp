#include "text/chat/tool_calls.h"

#include <optional>
#include <utility>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "text/chat/row_json.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

Json framed(Json function) { return {{"type", "function"}, {"function", std::move(function)}}; }

// Templates write arguments with `tojson`, which would put a text in quotes once more.
void read_arguments(Json& function, const std::string& where) {
  const auto arguments = function.find("arguments");
  if (arguments == function.end() || !arguments->is_string()) return;
  const auto& text = arguments->get_ref<const std::string&>();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    *arguments = Json::object();
    return;
  }
  std::optional<Json> parsed = parsed_text(text, where);
  if (!parsed || !parsed->is_object())
    throw DataError(concat(where, ": the \"arguments\" of the call of ", function["name"].dump(),
                           " are a text that is not a JSON object"));
  *arguments = std::move(*parsed);
}

}  // namespace

Json tool_calls_of(Json calls, const std::string& where) {
  for (Json& call : calls) {
    if (!call.is_object()) throw DataError(concat(where, ": a call is ", call.type_name(), ", no object"));
    if (!value_of(call, "function")) call = framed(std::move(call));
    Json& function = call["function"];
    if (!function.is_object() || !value_of(function, "name"))
      throw DataError(concat(where, ": a function_call without \"name\""));
    read_arguments(function, where);
  }
  return calls;
}

void normalize_calls(Json& message, const std::string& where) {
  if (const Json* role = value_of(message, "role"); role && *role == "function") message["role"] = "tool";
  const Json* calls = value_of(message, "tool_calls");
  const Json* call = value_of(message, "function_call");
  Json found;
  if (calls) {
    found = list_of(*calls, concat(where, ": \"tool_calls\""));
  } else if (call) {
    found = Json::array({*call});
  }
  if (message.contains("function_call")) message.erase("function_call");
  if (found.empty()) {
    if (message.contains("tool_calls")) message.erase("tool_calls");
    return;
  }
  message["tool_calls"] = tool_calls_of(std::move(found), where);
}

Json tools_of(const Json& tools, const std::string& name) {
  Json list = list_of(tools, name);
  if (list.empty()) return nullptr;
  for (Json& tool : list) {
    if (tool.is_string()) tool = parsed_text(tool, name).value_or(nullptr);
    if (!tool.is_object()) throw DataError(concat(name, ": a function is no JSON object"));
    if (!value_of(tool, "function") && value_of(tool, "name")) {
      if (tool.contains("type") && tool["type"] == "function") tool.erase("type");
      tool = framed(std::move(tool));
    }
  }
  return list;
}

}  // namespace trainer
