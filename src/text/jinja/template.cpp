#include "text/jinja/template.h"

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "text/jinja/globals.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"
#include "text/unicode/utf8.h"

namespace trainer::jinja {
namespace {

constexpr const char* kWhatToDo =
    ". It grows without bounds here. Fix this line, or use another template (data.chat_template)";

// The error's text. Values in it may be long; then only its beginning is returned.
std::string brief(const std::exception& error) {
  constexpr size_t kLongest = 1000;
  const std::string text = error.what();
  return text.size() > kLongest ? one_line(text, kLongest) : text;
}

}  // namespace

Template::Template(const std::string& source, std::string where) : source_(source), where_(std::move(where)) {
  if (valid_utf8_prefix(source) != source.size())
    throw of_family(ErrorCode::chat_template,
                    FormatError(concat(where_, ": the chat template is not valid UTF-8")));
  try {
    ParsedTemplate parsed = parse_template(source, names_);
    body_ = std::move(parsed.body);
    has_generation_ = parsed.has_generation;
  } catch (const SyntaxError& error) {
    throw of_family(ErrorCode::chat_template,
                    FormatError(concat(where_, ":", error.line, ": chat template: ", error.what())));
  }
}

Text Template::render(const std::vector<std::pair<std::string, Value>>& variables) const {
  const Budget budget;
  Rendering rendering(names_);
  Scope& scope = rendering.new_scope(nullptr);
  for (const auto& [name, value] : variables) {
    if (const int id = names_.find(name); id >= 0) scope.set(id, value);
  }
  const auto at = [&] { return concat(where_, ":", rendering.line, ": the chat template "); };
  Text out;
  try {
    body_.execute({rendering, scope}, out);
  } catch (const RaisedByTemplate& error) {
    throw DataError(concat(at(), "refuses the conversation: ", brief(error)));
  } catch (const RenderError& error) {
    throw DataError(concat(at(), "cannot handle the conversation: ", brief(error)));
  } catch (const Unsupported& error) {
    throw of_family(ErrorCode::chat_template,
                    FormatError(concat(at(), "needs what is not supported: ", brief(error))));
  } catch (const OutOfBudget& error) {
    throw of_family(ErrorCode::chat_template, FormatError(concat(at(), "takes ", error.what(), kWhatToDo)));
  } catch (const std::bad_alloc&) {
    throw of_family(ErrorCode::chat_template,
                    FormatError(concat(at(), "takes more memory than there is", kWhatToDo)));
  }
  return out;
}

}  // namespace trainer::jinja
