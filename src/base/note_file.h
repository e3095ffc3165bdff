// Files that tell others something and that nobody needs to go on: they may be lost.
#pragma once

#include <filesystem>
#include <string_view>

namespace trainer {

// Replaces the file: a reader sees the old content or the new one. Does not wait for the disk. Returns false,
// and leaves the file as it was, when it cannot be written (disk full, read-only). Throws nothing.
bool write_note(const std::filesystem::path& path, std::string_view content) noexcept;

}  // namespace trainer
