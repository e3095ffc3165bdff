#include "config/import_settings.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <sstream>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "base/text.h"
#include "config/memory_file.h"
#include "config/schema.h"
#include "config/value.h"

namespace trainer::config {
namespace {

constexpr size_t kLongestName = 200, kLongestNote = 10'000;  // characters

Config config_of(const std::string& yaml) {
  const MemoryFile file(yaml);
  return load_config(file.path(), {});
}

// Line -> what load_config() says of it: "FILE:12:3: data.train: expected ...".
std::map<int, std::string> refused_lines(const std::string& yaml) {
  const MemoryFile file(yaml);
  try {
    static_cast<void>(load_config(file.path(), {}));
    return {};
  } catch (const Error& error) {
    std::map<int, std::string> lines;
    std::istringstream text(error.what());
    const std::string place = file.path() + ":";
    for (std::string line; std::getline(text, line);) {
      const size_t at = line.find(place), column = at == std::string::npos ? at : line.find(": ", at);
      if (column == std::string::npos) continue;
      const std::string what = line.substr(column + 2);
      const size_t key = what.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789.");
      const bool has_key = key != std::string::npos && what.compare(key, 2, ": ") == 0;
      lines.emplace(std::atoi(line.c_str() + at + place.size()), has_key ? what.substr(key + 2) : what);
    }
    if (lines.empty()) throw;
    return lines;
  }
}

// The model may not be here yet, and then ours would be another one later.
bool follows_model(const std::string& name) {
  const auto on_model = [](const DependentDefault& other) {
    return std::ranges::find(other.states, "model", &State::key) != other.states.end();
  };
  const Key* key = find_key(name);
  return key != nullptr && std::ranges::any_of(key->dependent_defaults, on_model);
}

}  // namespace

ImportedSettings::Setting::Setting(const std::string& key, std::string value, std::string comment)
    : section(key.find('.') == std::string::npos ? "" : key.substr(0, key.find('.'))),
      name(key.substr(key.find('.') + 1)),
      yaml(std::move(value)),
      from(std::move(comment)) {}

std::string ImportedSettings::Setting::key() const { return section.empty() ? name : section + "." + name; }

void ImportedSettings::set(const std::string& key, const std::string& yaml, const std::string& from) {
  Setting setting(key, yaml, from);
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

std::string ImportedSettings::value_of(const std::string& key) const {
  const auto found = std::ranges::find(settings_, key, &Setting::key);
  return found == settings_.end() ? "" : found->yaml;
}

void ImportedSettings::their_default(const std::string& key, const std::string& yaml,
                                     const std::string& from) {
  defaults_.emplace_back(key, yaml, from);
}

void ImportedSettings::change(const std::string& name, const std::string& meaning) {
  changes_.push_back(one_line(concat(name, ": ", meaning), kLongestNote));
}

void ImportedSettings::leave_out(const std::string& name, const std::string& reason) {
  const std::string note = one_line(concat(name, ": ", reason), kLongestNote);
  if (std::ranges::find(left_out_, note) == left_out_.end())
    left_out_.push_back(note);  // of several data sets
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
                  setting.from.empty() || setting.from == setting.name
                      ? ""
                      : "  # " + one_line(setting.from, kLongestName)),
           &setting);
    }
  }
  return out.str();
}

// Takes back what load_config() refuses.
std::string ImportedSettings::accepted_yaml(const std::string& opening) {
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
  return text;
}

// The settings of `wanted` with which the configuration has other values. What ours would be without a key is
// only known together with the others: some defaults depend on the optimizer.
std::vector<ImportedSettings::Setting> ImportedSettings::different(const std::vector<Setting>& wanted) {
  std::vector<const Setting*> unused;
  const Config ours = config_of(yaml("", unused));
  const std::vector<Setting> given = settings_;
  settings_.insert(settings_.end(), wanted.begin(), wanted.end());
  const std::string with_them = yaml("", unused);
  settings_ = given;
  const Config theirs = config_of(with_them);
  std::vector<Setting> different;
  std::ranges::copy_if(wanted, std::back_inserter(different), [&](const Setting& setting) {
    return follows_model(setting.key()) ||
           value_text(ours, setting.key()) != value_text(theirs, setting.key());
  });
  return different;
}

void ImportedSettings::write_out_defaults() {
  std::vector<Setting> wanted, written;
  for (const Setting& setting : defaults_) {  // of two, the first counts
    const bool is_new = std::ranges::find(wanted, setting.key(), &Setting::key) == wanted.end();
    if (is_new && !has(setting.key())) wanted.push_back(setting);
  }
  try {
    written = different(wanted);
  } catch (const ConfigError&) {  // one of them does not go with what was given
    for (const Setting& setting : wanted) {
      try {
        std::ranges::copy(different({setting}), std::back_inserter(written));
      } catch (const ConfigError&) {
      }
    }
  }
  settings_.insert(settings_.end(), written.begin(), written.end());
}

ImportedConfig ImportedSettings::finish(const std::string& from, const std::string& opening) {
  accepted_yaml(opening);
  write_out_defaults();
  ImportedConfig imported{from, accepted_yaml(opening), changes_, {}, left_out_};
  for (const Setting& setting : settings_) {
    const auto known = std::ranges::find(defaults_, setting.key(), &Setting::key);
    if (known != defaults_.end() && known->from == setting.from)
      imported.defaults.push_back(concat(setting.key(), ": ", setting.yaml));
  }
  return imported;
}

}  // namespace trainer::config
