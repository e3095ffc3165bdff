// Finds files that come with the program.
#pragma once

#include <filesystem>
#include <optional>

namespace trainer {

// `name` is relative to the source tree ("configs/tiny_t5.yaml"). Looks next to the build folder of the
// program, and in the installation. Returns nullopt when the file is missing.
std::optional<std::filesystem::path> find_shipped(const std::filesystem::path& name);

// The same, after a look in the working directory.
std::optional<std::filesystem::path> find_installed(const std::filesystem::path& name);

}  // namespace trainer
