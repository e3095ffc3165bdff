// The version of the program and the library.
#pragma once

namespace trainer {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace trainer
