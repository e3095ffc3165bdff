#include "config/import_settings.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <regex>
#include <sstream>
#include <sys/mman.h>
#include <unistd.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "base/text.h"
#include "config/schema.h"
#include "config/value.h"

namespace trainer::config {
namespace {

bool is_empty(const YAML::Node& node) {
  if (!node.IsDefined() || node.IsNull()) return true;
  if (node.IsScalar()) return node.Scalar().empty() || node.Scalar() == "None";
  return node.size() == 0;
}

std::string quoted(const YAML::Node& scalar) {
  const std::string& text = scalar.Scalar();
  // What was quoted in the file is text, whatever it looks like.
  if (scalar.Tag() == "!") return text_as_yaml(text);
  double number = 0;
  if (YAML::convert<double>::decode(scalar, number) &&
      text.find_first_not_of("0123456789+-.eE") == std::string::npos &&
      text.find_first_of("eE") != std::string::npos) {
    return number_as_yaml(number);
  }
  return text.find_first_of("#:{}[]&*!|>'\"%@`,\n") == std::string::npos ? text : text_as_yaml(text);
}

// A file in memory, which load_config() can open.
class MemoryFile {
 public:
  explicit MemoryFile(const std::string& content) : fd_(::memfd_create("import", MFD_CLOEXEC)) {
    if (fd_ < 0 || ::write(fd_, content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
      throw ConfigError("no memory to check the result in");
    }
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return concat("/proc/self/fd/", fd_); }

 private:
  int fd_;
};

// Line -> what load_config() says of it.
std::map<int, std::string> refused_lines(const std::string& yaml) {
  const MemoryFile file(yaml);
  try {
    static_cast<void>(load_config(file.path(), {}));
    return {};
  } catch (const Error& error) {
    std::map<int, std::string> lines;
    std::istringstream text(error.what());
    static const std::regex kPlace(R"(:(\d+):\d+: (?:[a-z_0-9.]+: )?(.*))");
    for (std::string line; std::getline(text, line);) {
      std::smatch match;
      if (std::regex_search(line, match, kPlace)) lines.emplace(std::stoi(match[1]), match[2]);
    }
    if (lines.empty()) throw;
    return lines;
  }
}

}  // namespace

bool is_true(const YAML::Node& node) {
  if (!node.IsScalar()) return !is_empty(node);
  std::string text = node.Scalar();
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return !text.empty() && text != "false" && text != "no" && text != "off" && text != "0" && text != "none" &&
         text != "null";
}

std::string text_at(const YAML::Node& mapping, const char* name, const std::string& fallback) {
  const YAML::Node value = mapping[name];
  return value.IsDefined() && value.IsScalar() && value.Scalar() != "null" ? value.Scalar() : fallback;
}

std::string node_as_yaml(const YAML::Node& node) {
  if (node.IsScalar()) return quoted(node);
  std::vector<std::string> items;
  if (node.IsSequence()) {
    for (const auto& item : node) items.push_back(node_as_yaml(item));
    return "[" + join(items) + "]";
  }
  for (const auto& entry : node)
    items.push_back(node_as_yaml(entry.first) + ": " + node_as_yaml(entry.second));
  return "{" + join(items) + "}";
}

std::vector<std::string> texts_of(const YAML::Node& node) {
  std::vector<std::string> texts;
  if (node.IsSequence()) {
    for (const auto& item : node) texts.push_back(item.IsScalar() ? item.Scalar() : node_as_yaml(item));
    return texts;
  }
  std::istringstream parts(node.Scalar());
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t begin = part.find_first_not_of(' ');
    if (begin != std::string::npos)
      texts.push_back(part.substr(begin, part.find_last_not_of(' ') + 1 - begin));
  }
  return texts;
}

GivenKeys::GivenKeys(const YAML::Node& mapping) {
  for (const auto& entry : mapping) entries_.emplace_back(entry.first.Scalar(), entry.second);
}

std::optional<YAML::Node> GivenKeys::take(const std::string& name) {
  const auto found = std::ranges::find(entries_, name, [](const auto& entry) { return entry.first; });
  if (found == entries_.end()) return std::nullopt;
  const YAML::Node value = found->second;
  entries_.erase(found);
  if (is_empty(value)) return std::nullopt;
  return value;
}

std::optional<std::string> GivenKeys::take_text(const std::string& name) {
  const auto value = take(name);
  if (!value) return std::nullopt;
  return value->IsScalar() ? value->Scalar() : node_as_yaml(*value);
}

std::optional<double> GivenKeys::take_number(const std::string& name) {
  const auto value = take(name);
  if (!value) return std::nullopt;
  double number = 0;
  if (value->IsScalar() && YAML::convert<double>::decode(*value, number) && std::abs(number) < 1e15)
    return number;
  no_numbers_.push_back(name);
  return std::nullopt;
}

bool GivenKeys::take_flag(const std::string& name) {
  const auto value = take(name);
  return value && is_true(*value);
}

void GivenKeys::drop(const std::vector<std::string>& names) {
  for (const std::string& name : names) static_cast<void>(take(name));
}

std::optional<YAML::Node> GivenKeys::peek(const std::string& name) const {
  const auto found = std::ranges::find(entries_, name, [](const auto& entry) { return entry.first; });
  return found == entries_.end() || is_empty(found->second) ? std::nullopt : std::optional(found->second);
}

std::vector<std::pair<std::string, YAML::Node>> GivenKeys::rest() const {
  std::vector<std::pair<std::string, YAML::Node>> rest;
  for (const auto& entry : entries_) {
    if (!is_empty(entry.second)) rest.push_back(entry);
  }
  return rest;
}

void ImportedSettings::set(const std::string& key, const std::string& yaml, const std::string& from) {
  const size_t dot = key.find('.');
  Setting setting{dot == std::string::npos ? "" : key.substr(0, dot),
                  dot == std::string::npos ? key : key.substr(dot + 1), yaml, from};
  if (setting.section == "lora") lora_ = true;
  for (Setting& before : settings_) {
    if (before.section == setting.section && before.name == setting.name) {
      before = std::move(setting);
      return;
    }
  }
  settings_.push_back(std::move(setting));
}

void ImportedSettings::set_text(const std::string& key, const std::string& text, const std::string& from) {
  set(key, text_as_yaml(text), from);
}

void ImportedSettings::set_list(const std::string& key, const std::vector<std::string>& items,
                                const std::string& from) {
  std::vector<std::string> quoted_items;
  for (const std::string& item : items) quoted_items.push_back(text_as_yaml(item));
  set(key, "[" + join(quoted_items) + "]", from);
}

bool ImportedSettings::has(const std::string& key) const {
  return std::ranges::any_of(settings_, [&](const Setting& setting) {
    return (setting.section.empty() ? setting.name : setting.section + "." + setting.name) == key;
  });
}

void ImportedSettings::change(const std::string& name, const std::string& meaning) {
  changes_.push_back(concat(name, ": ", meaning));
}

void ImportedSettings::leave_out(const std::string& name, const std::string& reason) {
  left_out_.push_back(concat(name, ": ", reason));
}

std::string ImportedSettings::yaml(const std::string& opening, std::vector<const Setting*>& by_line) const {
  std::ostringstream out;
  by_line.clear();
  const auto line = [&](const std::string& text, const Setting* setting = nullptr) {
    out << text << '\n';
    by_line.push_back(setting);
  };
  const auto comment = [&](const std::string& first, const std::string& text) {
    std::string lead = first;
    for (const std::string& part : wrapped(text, 112)) {
      line("#" + lead + part);
      lead = "     ";
    }
  };
  comment(" ", opening);
  if (!changes_.empty()) {
    line("#");
    line("# What means something else here:");
    for (const std::string& change : changes_) comment("   - ", change);
  }
  if (!left_out_.empty()) {
    line("#");
    line("# What is left out:");
    for (const std::string& name : left_out_) comment("   - ", name);
  }
  for (const Section& section : schema()) {
    const bool empty_lora = section.name == "lora" && lora_;
    const bool given =
        std::ranges::any_of(settings_, [&](const Setting& s) { return s.section == section.name; });
    if (!given && !empty_lora) continue;
    line("");
    if (!section.name.empty()) line(section.name + (given ? ":" : ": {}"));
    for (const Setting& setting : settings_) {
      if (setting.section != section.name) continue;
      line(concat(section.name.empty() ? "" : "  ", setting.name, ": ", setting.yaml,
                  setting.from.empty() || setting.from == setting.name ? "" : "  # " + setting.from),
           &setting);
    }
  }
  return out.str();
}

ImportedConfig ImportedSettings::finish(const std::string& from, const std::string& opening) {
  std::vector<const Setting*> by_line;
  std::string text = yaml(opening, by_line);
  for (auto refused = refused_lines(text); !refused.empty(); refused = refused_lines(text)) {
    std::vector<Setting> kept;
    for (const Setting& setting : settings_) {
      const auto line = std::ranges::find_if(refused, [&](const auto& entry) {
        return static_cast<size_t>(entry.first) <= by_line.size() &&
               by_line[static_cast<size_t>(entry.first) - 1] == &setting;
      });
      if (line == refused.end()) {
        kept.push_back(setting);
      } else {
        leave_out(setting.from.empty() ? setting.name : setting.from,
                  concat(setting.yaml, " is no value for ", setting.section,
                         setting.section.empty() ? "" : ".", setting.name, ": ", line->second));
      }
    }
    if (kept.size() == settings_.size())
      throw ConfigError("the result is not accepted: " + refused.begin()->second);
    settings_ = std::move(kept);
    text = yaml(opening, by_line);
  }
  return {from, text, changes_, left_out_};
}

}  // namespace trainer::config
