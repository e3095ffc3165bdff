// The files of a set of rows, and what identifies them and the program that reads them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/config/config.h"

namespace trainer {

// Returns the file itself, the files that match a pattern, or all data files in a folder and its subfolders,
// sorted by name. Throws DataError when there are none.
std::vector<std::filesystem::path> data_files(const DataSource& source);

// Tells whether a file is still the one that was opened.

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

// Returns a text that differs between builds: another build may compute cached data differently.
std::string program_identity();

// Returns the names of the sources: "a.jsonl, b/*.jsonl".
std::string names_of(const std::vector<DataSource>& sources);

}  // namespace trainer
