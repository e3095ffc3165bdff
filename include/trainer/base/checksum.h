// Checksums that notice damage (no defence against intent): XXH3 with 64 bits. `xxhsum -H3 FILE` prints the
// same. https://github.com/Cyan4973/xxHash
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace trainer {

std::string checksum(std::string_view bytes);  // 16 hexadecimal digits

// Of bytes that come one after the other.
class RunningChecksum {
 public:
  RunningChecksum();
  void add(std::string_view bytes);
  std::string digits() const;  // of all that was added

 private:
  std::shared_ptr<XXH3_state_s> state_;
};

// Of a file's content, read in pieces. Throws FormatError when it cannot be read.
std::string file_checksum(const std::filesystem::path& path);

}  // namespace trainer
