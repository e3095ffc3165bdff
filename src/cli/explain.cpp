// trainer explain NAME [--config FILE] [key=value ...]
#include "cli/explain.h"

#include <algorithm>
#include <cctype>
#include <iostream>
#include <memory>
#include <sstream>

#include "trainer/base/error.h"
#include "trainer/base/error_code.h"
#include "trainer/base/strings.h"
#include "trainer/config/load.h"

#include "base/text.h"
#include "cli/commands.h"
#include "cli/pages.h"
#include "config/effects.h"
#include "config/foreign_keys.h"
#include "config/reference.h"
#include "config/value.h"

namespace trainer::cli {
namespace {

using config::Key;

constexpr size_t kIndent = 4;

class Explained {
 public:
  void title(const std::string& text) { out_ += text + "\n"; }
  void add(const std::string& text) {
    for (const std::string& line : wrapped(text, std::max(width_of_page(), 2 * kIndent) - kIndent))
      out_ += std::string(kIndent, ' ') + line + "\n";
  }
  const std::string& text() const { return out_; }

 private:
  std::string out_;
};

const char* on_resume_in_words(OnResume mark) {
  switch (mark) {
    case OnResume::may_change:
      return "it may change.";
    case OnResume::is_logged:
      return "another value is accepted, with a line in the log.";
    case OnResume::fixes_run:
    case OnResume::fixes_run_by_content:
      return "another value is refused, unless resume_changed names the key.";
  }
  return "";
}

const char* program_name(config::Program program) {
  switch (program) {
    case config::Program::hugging_face:
      return "Hugging Face";
    case config::Program::llama_factory:
      return "LLaMA-Factory";
    case config::Program::axolotl:
      return "axolotl";
    case config::Program::torchtune:
      return "torchtune";
  }
  return "";
}

// "lora_rank (LLaMA-Factory), lora_r (axolotl)"
std::string names_elsewhere(const Key& key) {
  std::vector<std::string> names;
  for (const config::ForeignKey& foreign : config::foreign_keys()) {
    if (*foreign.ours == '\0' || foreign.is_value() || foreign.key() != key.full_name()) continue;
    std::vector<std::string> theirs = foreign.names();
    std::erase(theirs, key.name);
    if (!theirs.empty()) names.push_back(concat(join(theirs), " (", program_name(foreign.program), ")"));
  }
  return join(names);
}

std::string type_of(const Key& key) {
  std::string text = key.choices.empty() ? config::expected_value(key) : join(key.choices);
  if (const std::string range = config::told_range(key); !range.empty()) text += ", " + range;
  return key.unit.empty() ? text : concat(text, " (", key.unit, ")");
}

// As it is written: the default, or where that says nothing, a placeholder.
std::string example_of(const Key& key, const Config* here) {
  const std::string value =
      here != nullptr ? value_text(*here, key.full_name()) : config::default_as_yaml(key);
  return value == "null" || value == "[]" || value == "{}" || value == "\"\"" ? "VALUE" : value;
}

std::string value_here(const Key& key, const Config& here) {
  const auto origin = here.origins.find(key.full_name());
  return concat("Here: ", value_text(here, key.full_name()), ", ",
                origin == here.origins.end() ? "which nothing sets" : "set by " + origin->second, ".");
}

// What other trainers call so.
std::optional<std::string> explained_foreign(const std::string& name, const Config* here) {
  const config::ForeignKey* foreign = config::find_foreign_key(name);
  if (foreign == nullptr) return std::nullopt;
  const std::string said =
      concat(name, " (", program_name(foreign->program), "): ", config::reason_of(*foreign), "\n");
  if (const Key* key = config::find_key(foreign->key())) return concat(said, "\n", explained_key(*key, here));
  if (const config::Section* section = config::find_section(foreign->key()))
    return concat(said, "\n", explained_section(*section));
  return said;
}

}  // namespace

std::string explained_key(const Key& key, const Config* here) {
  Explained lines;
  lines.title(key.full_name());
  lines.add(key.help);
  lines.add(concat("Value: ", type_of(key), ". Default: ", config::all_defaults(key), "."));
  for (const config::Condition& condition : key.conditions)
    lines.add(concat("No effect ", config::in_words(condition), "."));
  lines.add(concat("When a run resumes, ", on_resume_in_words(key.on_resume)));
  if (const std::string names = names_elsewhere(key); !names.empty()) lines.add("Elsewhere: " + names + ".");
  const std::string value = example_of(key, here);
  lines.add(concat("In a file: ", key.section.empty() ? "" : concat("below `", key.section, ":`, "), "`",
                   key.name, ": ", value, "`. On the command line: `", key.full_name(), "=", value, "`."));
  if (here != nullptr) {
    lines.add(value_here(key, *here));
    for (const IdleKey& idle : keys_without_effect(*here)) {
      if (idle.key == key.full_name()) lines.add(idle.text + ".");
    }
  } else {
    lines.add(concat("Where a file sets it: trainer explain ", key.full_name(), " --config FILE"));
  }
  return lines.text();
}

std::string explained_section(const config::Section& section) {
  Explained lines;
  lines.title(section.name);
  lines.add(section.help);
  size_t width = 0;
  for (const Key& key : section.keys) width = std::max(width, key.full_name().size());
  std::string text = lines.text() + "\n";
  for (const Key& key : section.keys) {
    text += broken_at_words(concat(std::string(kIndent, ' '), padded_right(key.full_name(), width + 2),
                                   config::first_sentence(key.help)),
                            width_of_page(), 0, kIndent + width + 2) +
            "\n";
  }
  return text + "\ntrainer explain KEY says more of one.\n";
}

const Key* key_called(const std::string& name) {
  if (const Key* key = config::find_key(name)) return key;
  const std::vector<const Key*> keys = config::keys_named(name);
  return keys.size() == 1 ? keys[0] : nullptr;
}

std::optional<std::string> explanation(const std::string& given, const Config* here) {
  const std::string name = lower_case(given);
  const bool number =
      !name.empty() && std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c); });
  if (name.starts_with("exit-") || number) {
    if (auto page = exit_code_page(number ? name : name.substr(5))) return page;
  }
  // A key of each section that has one of the name.
  std::string text;
  if (const Key* key = config::find_key(name)) {
    text = explained_key(*key, here);
  } else if (const config::Section* section = config::find_section(name)) {
    text = explained_section(*section);
  } else {
    for (const Key* key_of_section : config::keys_named(name))
      text += concat(text.empty() ? "" : "\n", explained_key(*key_of_section, here));
  }
  const std::optional<std::string> error = error_page(name);
  if (!text.empty()) return error ? concat(text, "\n", *error) : text;
  return error ? error : explained_foreign(name, here);
}

std::vector<std::string> explained_names() {
  std::vector<std::string> names = key_names();
  for (const config::Section& section : config::schema()) {
    if (!section.name.empty()) names.push_back(section.name);
  }
  for (const ErrorCode code : error_codes()) names.push_back(name_of(code));
  for (const std::string& code : exit_codes()) names.push_back("exit-" + code);
  return names;
}

void add_explain(CLI::App& command) {
  struct Options {
    std::string name;
    std::optional<std::string> config;
    std::vector<std::string> overrides;
  };
  auto options = std::make_shared<Options>();
  command
      .add_option("name", options->name,
                  "A key (lora.r), a section, the code of an error, or an exit code (5)")
      ->type_name("NAME");
  command
      .add_option("-c,--config", options->config,
                  "Also say what the key is in this configuration, and where it is set")
      ->type_name("FILE");
  command.add_option("overrides", options->overrides, "Configuration keys that override the file")
      ->type_name("key=value");
  command.callback([options] {
    require_option(options->name, "explain", "NAME");
    std::optional<Config> here;
    if (options->config || !options->overrides.empty())
      here = load_config(options->config, options->overrides);
    if (const auto text = explanation(options->name, here ? &*here : nullptr)) {
      std::cout << *text;
      return;
    }
    std::vector<std::string> names = explained_names();
    for (const config::Section& section : config::schema()) {
      for (const Key& key : section.keys) names.push_back(key.name);
    }
    const std::string near = closest(options->name, names);
    throw of_family(ErrorCode::command_line,
                    ConfigError(concat("explain: '", options->name, "' is no key and no code; ",
                                       near.empty() ? "" : concat("did you mean ", near, "? "),
                                       "`trainer help ", options->name, "` searches the pages")));
  });
}

}  // namespace trainer::cli
