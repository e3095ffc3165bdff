// Finds files that come with the program.
#pragma once

#include <filesystem>
#include <optional>

namespace trainer {

// `name` is relative to the source tree ("configs/models/flan-t5-xl.json"). Looks in the working directory,
// next to the build folder of the program, and in the installation. Returns nullopt when the file is missing.
std::optional<std::filesystem::path> find_installed(const std::filesystem::path& name);

}  // namespace trainer
