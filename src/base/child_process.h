// Starts programs beside this one: the command of an event, the helpers that feed services, and what the page
// of `trainer ui` asks of this program itself.
#pragma once

#include <filesystem>
#include <string>
#include <sys/types.h>
#include <vector>

namespace trainer {

// The environment of this process, as "NAME=value".
std::vector<std::string> environment_variables();

// The descriptors that a child has as its standard input and outputs.
struct ChildFiles {
  int input, output, errors;
};

// Starts `command` (its first word is looked for on the PATH) with these files and nothing else of ours: in a
// session and a process group of its own, with the default for each signal. Sets `child`. Returns 0, or the
// number of the error.
int start_child(std::vector<std::string> command, std::vector<std::string> variables, const ChildFiles& given,
                pid_t& child);

// The same, with both its outputs in the file `output`.
int start_child(std::vector<std::string> command, std::vector<std::string> variables, int input,
                const std::filesystem::path& output, pid_t& child);

}  // namespace trainer
