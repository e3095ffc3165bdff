// Finds LibTorch for a program that is not where it was built. A folder that holds it is a torch package of
// Python (site-packages/torch) or an unpacked LibTorch; the functions return it without symbolic links.
//
// All throw InstallationError, with what to do, for a folder with another version than the program was built
// with or without the library.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trainer::cli {

// The library in such a folder.
inline constexpr const char* kTorchLibrary = "lib/libtorch_cpu.so";

// What the environment variable TORCH_DIR names; nullopt if it is not set or empty.
std::optional<std::filesystem::path> torch_by_name();

// The one that belongs to the program installed in `prefix`: the package torch beside it where pip has
// installed both, else a folder libtorch in `prefix` or beside it. nullopt if there is none.
std::optional<std::filesystem::path> torch_beside(const std::filesystem::path& prefix);

// What `import torch` would load in the Python that the program was installed with, else in the first python3
// on the PATH. Throws if there is none.
std::filesystem::path torch_of_python(const std::filesystem::path& prefix);

// For one that the loader has found by itself; nothing is said where the version is not known.
void check_version(const std::filesystem::path& folder);

// For a LibTorch in `folder` that cannot be opened: the command that mends it.
std::string torch_advice(const std::filesystem::path& folder);

}  // namespace trainer::cli
