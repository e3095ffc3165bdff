#pragma once

#include <filesystem>
#include <string>

namespace trainer::cli {

// The Python of an environment whose packages include `packages` (P/lib/python3.11/site-packages):
// P/bin/python3, else the name of that version, for the PATH; "python3" where the folder's name tells none.
std::string python_of(const std::filesystem::path& packages);

// Prints what Python says of the place of the package `torch`, without importing it; "" if it has none, or
// there is no such Python. python: a path, or a name on the PATH.
std::string torch_in(const std::string& python);

}  // namespace trainer::cli
