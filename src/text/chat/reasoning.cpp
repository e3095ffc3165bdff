#include "text/chat/reasoning.h"

#include <algorithm>
#include <string_view>

#include "trainer/base/strings.h"

#include "text/chat/row_json.h"
#include "text/unicode/unicode.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// Returns the tag that `text` begins with if its name tells of reasoning: "<think>", "</think>", "[THINK]".
std::string_view reasoning_tag(std::string_view text) {
  constexpr size_t kLongest = 40;
  if (text.empty() || (text[0] != '<' && text[0] != '[')) return "";
  const size_t end = text.substr(0, kLongest).find(text[0] == '<' ? '>' : ']');
  if (end == std::string_view::npos) return "";
  const std::string_view tag = text.substr(0, end + 1);
  const std::string name = lower(tag);
  for (const char* word : {"think", "thought", "reason"}) {
    if (name.find(word) != std::string::npos) return tag;
  }
  return "";
}

// The tags that stand at the beginning of an answer.
ReasoningTags tags_in(std::string_view answer) {
  const std::string_view first = reasoning_tag(trimmed(answer));
  if (first.empty()) return {};
  if (first[1] == '/') return {"", std::string(first)};
  return {std::string(first), concat(first.substr(0, 1), "/", first.substr(1))};
}

// Does the conversation itself say that the answer has a block of reasoning?
bool says_reasoning(const Json& message, const std::string& close) {
  for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
    const Json* value = value_of(message, key);
    if (value && !(value->is_string() && trimmed(value->get_ref<const std::string&>()).empty())) return true;
  }
  const Json* content = value_of(message, "content");
  const bool is_text = content && (content->is_string() || content->is_array());
  return is_text && content_text(message).find(close) != std::string::npos;
}

// The white space after a block belongs to it as far as the template wrote it.
size_t skip_written_space(const jinja::Text& text, size_t at, size_t end) {
  for (const jinja::Text::Run& run : text.runs()) {
    if (run.end <= at) continue;
    if (run.origin.has_message() && run.origin.part() == jinja::Origin::Part::said) return at;
    while (at < std::min(run.end, end) && is_space(text.bytes()[at])) at++;
    if (at < run.end) return at;
  }
  return at;
}

}  // namespace

ReasoningTags find_reasoning_tags(const std::string& text, size_t begin, const std::string& reasoning,
                                  const std::string& content) {
  const size_t reasons = text.find(reasoning, begin);
  const size_t says = reasons == std::string::npos ? reasons : text.find(content, reasons);
  if (says == std::string::npos) return {};
  const std::string_view all = text;
  const size_t reasoned = reasons + reasoning.size();
  ReasoningTags tags{std::string(trimmed(all.substr(begin, reasons - begin))),
                     std::string(trimmed(all.substr(reasoned, says - reasoned)))};
  return tags.close.empty() ? ReasoningTags{} : tags;
}

void find_reasoning(const jinja::Text& text, const Json& messages, const ReasoningTags& tags,
                    std::vector<RenderedChat::Answer>& answers) {
  const std::string_view bytes = text.bytes();
  for (RenderedChat::Answer& answer : answers) {
    answer.after_reasoning = answer.begin;
    const std::string_view all = bytes.substr(answer.begin, answer.end - answer.begin);
    const auto [open, close] = tags.close.empty() ? tags_in(all) : tags;
    const std::string_view inside = trimmed(all);
    if (close.empty() || !inside.starts_with(open)) continue;
    const size_t begin = static_cast<size_t>(inside.data() - bytes.data()) + open.size();
    const size_t closed = bytes.substr(0, answer.end).find(close, begin);
    if (closed == std::string_view::npos) continue;
    const bool empty = trimmed(bytes.substr(begin, closed - begin)).empty();
    // Without an opening tag, a closing one further on may be anything.
    if (open.empty() && !empty && !says_reasoning(messages[answer.message], close)) continue;
    answer.after_reasoning = skip_written_space(text, closed + close.size(), answer.end);
    answer.empty_reasoning = empty && !says_reasoning(messages[answer.message], close);
  }
}

}  // namespace trainer
