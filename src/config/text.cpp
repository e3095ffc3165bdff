#include "config/text.h"

#include <sstream>

#include "trainer/base/strings.h"

#include "config/conditions.h"
#include "config/value.h"

namespace trainer::config {

std::vector<std::string> wrap(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (lines.empty() || lines.back().size() + 1 + word.size() > width) {
      lines.push_back(word);
    } else {
      lines.back() += " " + word;
    }
  }
  return lines;
}

std::string first_sentence(const std::string& text) {
  const size_t end = text.find(". ");
  if (end != std::string::npos) return text.substr(0, end);
  return text.ends_with('.') ? text.substr(0, text.size() - 1) : text;
}

std::string dependence(const Key& key) {
  std::string text;
  for (const Condition& condition : key.conditions) text += concat(" No effect ", in_words(condition), ".");
  for (const DependentDefault& other : key.dependent_defaults)
    text += concat(" Default with ", other.key, ": ", other.value, ": ", other.yaml, ".");
  return text;
}

std::string description(const Key& key) {
  std::string text = key.help;
  if (key.choices.size() > 1) text += " One of " + join(key.choices) + ".";
  if (key.choices.size() == 1) text += " Only " + key.choices[0] + ".";
  const std::string range = allowed_range(key);
  if (!range.empty()) text += concat(" ", static_cast<char>(std::toupper(range[0])), range.substr(1), ".");
  if (!key.unit.empty()) text += concat(" In ", key.unit, ".");
  return text + dependence(key);
}

}  // namespace trainer::config
