// The names of a checkpoint's folder while it comes and goes.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trainer {

inline constexpr const char* kFilling = ".tmp";
inline constexpr const char* kReplacing =
    ".replaced.tmp";  // the one that a new one of the same step replaces
inline constexpr const char* kRemoving = ".removed.tmp";

inline std::filesystem::path with_ending(std::filesystem::path path, const char* ending) {
  path += ending;
  return path;
}

// The step of "checkpoint-STEP" + ending.
std::optional<int64_t> checkpoint_step(const std::string& name, const std::string& ending = "");

}  // namespace trainer
