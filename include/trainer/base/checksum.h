// Checksums that notice damage (no defence against intent): XXH3 with 64 bits. `xxhsum -H3 FILE` prints the
// same. https://github.com/Cyan4973/xxHash
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace trainer {

std::string checksum(std::string_view bytes);  // 16 hexadecimal digits
// Of a file's content, read in pieces. Throws FormatError when it cannot be read.
std::string file_checksum(const std::filesystem::path& path);

}  // namespace trainer
