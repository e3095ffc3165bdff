// trainer completion SHELL, and what its scripts call: trainer complete LINE
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "trainer/base/error_code.h"

#include "base/file_facts.h"
#include "cli/commands.h"
#include "cli/explain.h"
#include "cli/pages.h"
#include "config/keys.h"

namespace trainer::cli {
namespace {

// Completions of a command line that is being typed.

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

Words words_of(const std::string& line) {
  std::istringstream text(line);
  Words words;
  for (std::string word; text >> word;) words.push_back(word);
  if (line.empty() || line.back() == ' ') words.emplace_back();
  return words;
}

// The command of the line. Without its word, options and keys are those of `train`.
const CLI::App* command_of(const CLI::App& app, const Words& words) {
  for (size_t i = 1; i + 1 < words.size(); i++) {
    if (words[i].starts_with('-')) {
      if (words[i] == "-c" || words[i] == "--config") return app.get_subcommand("train");
      continue;
    }
    for (const CLI::App* command : listed_commands(app)) {
      if (command->get_name() == words[i]) return command;
    }
    return app.get_subcommand("train");
  }
  return nullptr;
}

Words names_of(const CLI::Option& option) {
  Words names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  return names;
}

void add_options(Words& found, const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : names_of(*option)) {
      if (name.starts_with("--")) found.push_back(name);
    }
  }
}

// The option whose value the last word is.
const CLI::Option* option_before(const CLI::App& command, const Words& words) {
  const std::string& before = words[words.size() - 2];
  for (const CLI::Option* option : command.get_options()) {
    const Words names = names_of(*option);
    if (option->get_items_expected_max() > 0 && std::ranges::find(names, before) != names.end())
      return option;
  }
  return nullptr;
}

// CLI11 shows what an option may be as NAME:{auto,bf16}.
Words values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  std::istringstream text(type.substr(begin + 1, end - begin - 1));
  Words values;
  for (std::string value; std::getline(text, value, ',');) values.push_back(value);
  return values;
}

// Presets, and files here that may be configurations.
Words configurations(const std::string& beginning) {
  Words found;
  std::error_code ignored;
  if (const auto folder = find_shipped("configs")) {
    for (const auto& entry : fs::directory_iterator(*folder, ignored)) {
      if (entry.path().extension() == ".yaml") found.push_back(entry.path().filename());
    }
  }
  const fs::path parent = fs::path(beginning).parent_path();
  for (const auto& entry : fs::directory_iterator(parent.empty() ? "." : parent, ignored)) {
    const fs::path path = parent / entry.path().filename();
    if (entry.is_directory(ignored)) {
      found.push_back(path.string() + "/");
    } else if (path.extension() == ".yaml" || path.extension() == ".yml") {
      found.push_back(path);
    }
  }
  return found;
}

Words values_of_key(const std::string& name) {
  Words found;
  for (const KeyValues& key : all_keys()) {
    if (name != key.section + "." + key.name && !(name == key.name && key.clear_without_section)) continue;
    for (const std::string& value : key.values) found.push_back(name + "=" + value);
  }
  return found;
}

// Sections first; keys of a section once its name is there. A key without its section is found by its
// beginning.
Words keys(const std::string& beginning) {
  if (const size_t equals = beginning.find('='); equals != std::string::npos)
    return values_of_key(beginning.substr(0, equals));
  Words found;
  for (const KeyValues& key : all_keys()) {
    const std::string section = key.section.empty() ? "" : key.section + ".";
    if (section.empty() || beginning.starts_with(section)) {
      found.push_back(section + key.name + "=");
    } else {
      found.push_back(section);
      if (beginning.size() > 1 && key.clear_without_section) found.push_back(key.name + "=");
    }
  }
  return found;
}

Words topics() {
  Words found = page_names();
  for (const ErrorCode code : error_codes()) found.push_back(name_of(code));
  for (const std::string& code : exit_codes()) found.push_back("exit-" + code);
  return found;
}

Words names_to_explain() {
  Words found = explained_names();
  for (const KeyValues& key : all_keys()) {
    if (key.clear_without_section) found.push_back(key.name);
  }
  return found;
}

Words all_candidates(const CLI::App& app, const Words& words) {
  const std::string& last = words.back();
  const CLI::App* command = command_of(app, words);
  if (command == nullptr) {
    Words found;
    for (const CLI::App* known : listed_commands(app)) found.push_back(known->get_name());
    add_options(found, app);
    found.emplace_back("--config");
    if (words.size() > 1 && last.find_first_of(".=") != std::string::npos) return keys(last);
    return found;
  }
  if (const CLI::Option* option = option_before(*command, words)) {
    const Words names = names_of(*option);
    const bool configuration = std::ranges::find(names, "--config") != names.end();
    return configuration ? configurations(last) : values_of(*option);
  }
  Words found;
  if (last.starts_with('-')) {
    add_options(found, *command);
    add_options(found, app);
  } else if (command->get_name() == "explain" && words.size() == 3) {
    found = names_to_explain();
  } else if (takes_keys(*command) || command->get_name() == "eval") {
    found = keys(last);
  } else if (command->get_name() == "completion") {
    found = {"bash", "zsh", "fish"};
  } else if (command->get_name() == "help") {
    found = topics();
    for (const CLI::App* known : listed_commands(app)) found.push_back(known->get_name());
  }
  return found;
}

// Returns the words that the last word of `line` may become: commands, options, their values, configuration
// keys
// ("training.batch_size="), values of keys, presets. Empty where files are meant. A line that ends in a space
// ends in an empty word. `app` has all commands.
std::vector<std::string> candidates(const CLI::App& app, const std::string& line) {
  const Words words = words_of(line);
  if (words.size() < 2) return {};
  Words found = all_candidates(app, words);
  std::erase_if(found, [&](const std::string& word) { return !word.starts_with(words.back()); });
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

// Bash takes = and : for the end of a word, so that only what follows them is replaced.
constexpr const char* kBash =
    R"(# source <(trainer completion bash), or as a file in ~/.local/share/bash-completion/completions/
_trainer() {
  local line="${COMP_LINE:0:COMP_POINT}"
  local last="${line##* }"
  mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" complete "$line" 2>/dev/null)
  if [[ ${#COMPREPLY[@]} -eq 1 && "${COMPREPLY[0]}" == *[=./] ]]; then compopt -o nospace; fi
  if [[ "$last" == *[=:]* && "$COMP_WORDBREAKS" == *=* ]]; then
    local rest="${last##*[=:]}"
    local before="${last%"$rest"}"
    COMPREPLY=("${COMPREPLY[@]#"$before"}")
  fi
}
complete -o default -o bashdefault -F _trainer trainer
)";

constexpr const char* kZsh = R"(#compdef trainer
# As a file _trainer in a folder of $fpath, or: source <(trainer completion zsh)
_trainer() {
  local -a found open closed
  found=("${(@f)$(${words[1]} complete "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
  open=(${(M)found:#*[=./]})
  closed=(${found:#*[=./]})
  if (( ${#open} + ${#closed} )); then
    (( ${#open} )) && compadd -S '' -- $open
    (( ${#closed} )) && compadd -- $closed
  else
    [[ "${words[CURRENT]}" == *=* ]] && compset -P '*='
    _files
  fi
}
if [[ "$funcstack[1]" == _trainer ]]; then
  _trainer "$@"
else
  compdef _trainer trainer
fi
)";

constexpr const char* kFish =
    R"(# trainer completion fish | source, or as a file in ~/.config/fish/completions/
function __trainer_complete
  set -l line (commandline -cp)
  set -l program (commandline -opc)[1]
  $program complete "$line" 2>/dev/null
end
function __trainer_knows
  test (count (__trainer_complete)) -gt 0
end
# Files only where nothing else is known.
complete -c trainer -n __trainer_knows -f -a '(__trainer_complete)'
)";

}  // namespace

void add_completion(CLI::App& command) {
  auto shell = std::make_shared<std::string>();
  command.add_option("shell", *shell, "The shell")
      ->type_name("SHELL")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command.footer(
      "bash:  source <(trainer completion bash)     in ~/.bashrc\n"
      "zsh:   source <(trainer completion zsh)      in ~/.zshrc, after compinit\n"
      "fish:  trainer completion fish | source      in ~/.config/fish/config.fish\n"
      "The packages install these scripts.");
  command.callback([shell] {
    require_option(*shell, "completion", "SHELL (bash, zsh or fish)");
    std::cout << (*shell == "bash" ? kBash : *shell == "zsh" ? kZsh : kFish);
  });
}

void add_complete(CLI::App& command) {
  auto line = std::make_shared<std::string>();
  command.group("");  // not listed
  command.add_option("line", *line, "The command line")->type_name("LINE");
  command.callback([&command, line] {
    for (const std::string& word : candidates(*command.get_parent(), *line)) std::cout << word << '\n';
  });
}

}  // namespace trainer::cli
