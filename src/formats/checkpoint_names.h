// The names of a checkpoint's folder while it is written, replaced or removed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trainer {

inline constexpr const char* kFilling = ".tmp";
inline constexpr const char* kReplacing =
    ".replaced.tmp";  // the old checkpoint while a new one of the same step replaces it
inline constexpr const char* kRemoving = ".removed.tmp";

inline std::filesystem::path with_ending(std::filesystem::path path, const char* ending) {
  path += ending;
  return path;
}

// Returns the step in a name "checkpoint-STEP" + ending; nullopt for any other name.
std::optional<int64_t> checkpoint_step(const std::string& name, const std::string& ending = "");

}  // namespace trainer
