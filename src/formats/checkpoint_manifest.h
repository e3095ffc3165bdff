// The names and the manifest of a checkpoint's folder.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/checked_name.h"

namespace trainer {

// The names of a checkpoint's folder while it is written, replaced or removed.

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

// trainer_manifest.json: the files of a checkpoint with their sizes and checksums.

struct ManifestEntry {
  int64_t bytes = 0;
  std::string checksum;
};

struct Manifest {
  int64_t step = 0;
  std::map<CheckedName, ManifestEntry> files;
};

// Writes the manifest to `directory`, with a checksum over every byte of the manifest itself.
void write_manifest(const std::filesystem::path& directory, const Manifest& manifest);
// Throws FormatError when the manifest is missing, damaged, or of a newer version of the format.
Manifest read_manifest(const std::filesystem::path& directory);

}  // namespace trainer
