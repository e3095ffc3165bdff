// How long something took.
#pragma once

#include <chrono>

namespace trainer {

// Returns the seconds from `begin` until now.
inline double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace trainer
