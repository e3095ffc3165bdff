// Identifies the build of the program.
#pragma once

#include <string>

namespace trainer {

// Returns a text that differs between builds: another build may compute cached data differently.
std::string program_identity();

}  // namespace trainer
