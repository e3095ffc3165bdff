// Tells whether a file is still the one that was opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace trainer {

struct FileIdentity {
  // Throws DataError if the file does not exist.
  static FileIdentity of(const std::filesystem::path& path);

  bool operator==(const FileIdentity&) const = default;

  uint64_t device = 0, number = 0;  // identify the file, whatever its name
  int64_t bytes = 0;
  int64_t changed_at = 0;  // in nanoseconds
};

// Returns a fingerprint of a file's content without reading all of it, because reading takes as long as the
// disk needs: the size, the modification time, and a checksum of pieces that are spread over the file. A file
// that was moved, or copied with its time, has the same fingerprint.
std::string content_fingerprint(std::string_view content, const FileIdentity& identity);

}  // namespace trainer
