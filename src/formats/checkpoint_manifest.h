// trainer_manifest.json: the files of a checkpoint with their sizes and checksums.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace trainer {

struct ManifestEntry {
  int64_t bytes = 0;
  std::string checksum;
};

struct Manifest {
  int64_t step = 0;
  std::map<std::string, ManifestEntry> files;
};

// Writes the manifest to `directory`, with a checksum over every byte of the manifest itself.
void write_manifest(const std::filesystem::path& directory, const Manifest& manifest);
// Throws FormatError when the manifest is missing, damaged, or of a newer version of the format.
Manifest read_manifest(const std::filesystem::path& directory);

}  // namespace trainer
