// Which build of the program this is.
#pragma once

#include <string>

namespace trainer {

// Differs between builds: what one of them keeps in the cache, another may make differently.
std::string program_identity();

}  // namespace trainer
