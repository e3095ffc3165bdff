#include "base/installed.h"

namespace trainer {

namespace fs = std::filesystem;

std::optional<fs::path> find_shipped(const fs::path& name) {
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const fs::path& from : {folder / "..", folder / ".." / "share" / "trainer"}) {
    const fs::path path = (from / name).lexically_normal();
    if (fs::exists(path, ignored)) return path;
  }
  return std::nullopt;
}

std::optional<fs::path> find_installed(const fs::path& name) {
  std::error_code ignored;
  return fs::exists(name, ignored) ? name.lexically_normal() : find_shipped(name);
}

}  // namespace trainer
