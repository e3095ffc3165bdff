// Checksums that detect damage (not deliberate changes): XXH3 with 64 bits. `xxhsum -H3 FILE` prints the
// same. https://github.com/Cyan4973/xxHash
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace trainer {

std::string checksum(std::string_view bytes);  // 16 hexadecimal digits

// The checksum of data that arrives in pieces.
class RunningChecksum {
 public:
  RunningChecksum();
  void add(std::string_view bytes);
  std::string digits() const;  // the checksum of everything added so far

 private:
  std::shared_ptr<XXH3_state_s> state_;
};

// Returns the checksum of a file's content, read in pieces. Throws FormatError when it cannot be read.
std::string file_checksum(const std::filesystem::path& path);

}  // namespace trainer
