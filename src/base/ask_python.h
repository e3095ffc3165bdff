// Asks a Python where its packages are.
#pragma once

#include <filesystem>
#include <string>

namespace trainer {

// The Python of an environment whose packages include `packages` (P/lib/python3.11/site-packages):
// P/bin/python3, else the name of that version, for the PATH; "python3" where the folder's name tells none.
std::string python_of(const std::filesystem::path& packages);

// Returns the folder of a package, as Python finds it, without importing it; "" if it has none, or there is
// no such Python. python: a path, or a name on the PATH.
std::string package_in(const std::string& python, const std::string& package);

}  // namespace trainer
