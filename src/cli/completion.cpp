// trainer completion SHELL, and what its scripts call: trainer complete LINE
#include <iostream>
#include <memory>
#include <string>

#include "cli/candidates.h"
#include "cli/commands.h"

namespace trainer::cli {
namespace {

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
complete -c trainer -a '(__trainer_complete)'
)";

}  // namespace

void add_completion_commands(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("completion", "Print the completion script of a shell: bash, zsh or fish");
  command->add_option("shell", *shell, "The shell")
      ->type_name("SHELL")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->footer(
      "bash:  source <(trainer completion bash)     in ~/.bashrc\n"
      "zsh:   source <(trainer completion zsh)      in ~/.zshrc, after compinit\n"
      "fish:  trainer completion fish | source      in ~/.config/fish/config.fish\n"
      "The packages install these scripts.");
  command->callback([shell] {
    require_option(*shell, "completion", "SHELL (bash, zsh or fish)");
    std::cout << (*shell == "bash" ? kBash : *shell == "zsh" ? kZsh : kFish);
  });
  auto line = std::make_shared<std::string>();
  CLI::App* complete =
      app.add_subcommand("complete", "Print what the last word of a command line may become");
  complete->group("");  // not listed
  complete->add_option("line", *line, "The command line")->type_name("LINE");
  complete->callback([&app, line] {
    for (const std::string& word : candidates(app, *line)) std::cout << word << '\n';
  });
}

}  // namespace trainer::cli
