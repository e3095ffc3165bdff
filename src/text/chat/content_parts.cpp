#include "text/chat/content_parts.h"

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "text/chat/row_json.h"

namespace trainer {

using Json = nlohmann::ordered_json;

void check_parts(const Json& content, const std::string& where) {
  for (size_t i = 0; i < content.size(); i++) {
    const Json& part = content[i];
    const std::string what = concat(where, ": part ", i + 1, " of \"content\"");
    if (!part.is_object()) throw DataError(concat(what, " is ", part.type_name(), ", not an object"));
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
