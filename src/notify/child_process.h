// Starts programs beside a run: the command of an event, and the helpers that feed services.
#pragma once

#include <filesystem>
#include <string>
#include <sys/types.h>
#include <vector>

namespace trainer {

// The environment of this process, as "NAME=value".
std::vector<std::string> environment_variables();

// Starts `command` (its first word is looked for on the PATH) with `input` as its standard input and nothing
// else of ours: in a session and a process group of its own, with the default for each signal. Both its
// outputs go to the file `output`. Sets `child`. Returns 0, or the number of the error.
int start_child(std::vector<std::string> command, std::vector<std::string> variables, int input,
                const std::filesystem::path& output, pid_t& child);

}  // namespace trainer
