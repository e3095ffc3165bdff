#include "trainer/base/installed.h"

namespace trainer {

namespace fs = std::filesystem;

std::optional<fs::path> find_installed(const fs::path& name) {
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const fs::path& from : {fs::path(), folder / "..", folder / ".." / "share" / "trainer"}) {
    const fs::path path = (from / name).lexically_normal();
    if (fs::exists(path, ignored)) return path;
  }
  return std::nullopt;
}

}  // namespace trainer
