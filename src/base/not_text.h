// Says what a file is that should be text, or a file of another kind.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace trainer {

// Returns what a file is that begins like this, if it is no text of its own: "is compressed with gzip", the
// pointer of Git LFS, a page of HTML; and what to do. "" for anything else, among it text in UTF-8. For data
// files without an ending that tells.
std::string not_text(std::string_view begin);

// The same for a file that is never packed: "is compressed with gzip; unpack it, or download it again".
std::string other_kind(std::string_view begin);

// The same for a whole text. Also finds a byte 0 and what is not UTF-8, with its line.
std::string why_no_text(std::string_view text);

// Returns the content of a file of text. Throws FormatError "PATH: WHY" when it cannot be read or is no text.
std::string read_text(const std::filesystem::path& path);

}  // namespace trainer
