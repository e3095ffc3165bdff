#pragma once

#include <stdexcept>

namespace trainer::cli {

// The program's own files or LibTorch are not there, or do not belong together.
struct InstallationError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace trainer::cli
