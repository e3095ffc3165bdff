// Files that come with the program.
#pragma once

#include <filesystem>
#include <optional>

namespace trainer {

// `name` as in the source tree ("configs/models/flan-t5-xl.json"), looked for in the working directory,
// beside the program's build folder, and where the program is installed.
std::optional<std::filesystem::path> find_installed(const std::filesystem::path& name);

}  // namespace trainer
