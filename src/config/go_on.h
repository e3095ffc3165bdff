// How to go on with a run: the one command that does.
#pragma once

#include <filesystem>
#include <string>

#include "trainer/config/config.h"

namespace trainer {

// Returns the command for the run whose configuration is in `directory`, to be typed where the run was
// started: "trainer --config runs/a/config.yaml", with what must be otherwise than that file says. For
// processes that another launcher has started, how to get there again is said in words.
std::string go_on_command(const Config& config, const std::filesystem::path& directory);

// The same for a run that is complete and has a checkpoint of its end: with twice as many steps or epochs.
std::string longer_run_command(const Config& config, const std::filesystem::path& directory);

}  // namespace trainer
