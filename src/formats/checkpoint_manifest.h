// trainer_manifest.json: what a checkpoint consists of.
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

// Into `directory`, with a checksum of its own, which covers every byte of it.
void write_manifest(const std::filesystem::path& directory, const Manifest& manifest);
// Throws FormatError: missing, damaged, or of a newer version of the format.
Manifest read_manifest(const std::filesystem::path& directory);

}  // namespace trainer
