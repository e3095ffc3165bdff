// Whether a file is still the one that was opened.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace trainer {

struct FileIdentity {
  // Throws DataError when there is no such file.
  static FileIdentity of(const std::filesystem::path& path);

  bool operator==(const FileIdentity&) const = default;

  uint64_t device = 0, number = 0;  // the file itself, whatever its name
  int64_t bytes = 0;
  int64_t changed_at = 0;  // in nanoseconds
};

// What tells a file's content from another's without reading all of it, as reading takes as long as the disk
// does: its size, the time of its last change, and a checksum of pieces that are spread over it. A file that
// was moved, or copied with its time, is the same.
std::string content_fingerprint(std::string_view content, const FileIdentity& identity);

}  // namespace trainer
