// What `trainer` alone says: what can be done in this folder.
#pragma once

#include <filesystem>
#include <string>

namespace trainer::cli {

// Returns the commands that go on from what is in the folder: a run, configurations, runs below it; `trainer
// init` where there is nothing.
std::string what_next(const std::filesystem::path& folder);

}  // namespace trainer::cli
