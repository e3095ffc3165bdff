// Folders of the cache that nobody has used for long are removed.
#include "data/cache_folder.h"

#include <chrono>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/checksum.h"
#include "data/fixture.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

class CacheFolders : public DataTest {
 protected:
  // A folder with a file, both last used so many days ago.
  fs::path used(const std::string& name, int64_t days) const {
    const fs::path path = folder_ / name;
    fs::create_directories(path);
    write(name + "/part", "said");
    const auto when = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()) - days * 86400;
    const timespec times[2] = {{when, 0}, {when, 0}};
    for (const fs::path& each : {path / "part", path})
      EXPECT_EQ(::utimensat(AT_FDCWD, each.c_str(), times, 0), 0);
    return path;
  }
};

TEST_F(CacheFolders, ThatWereNotUsedForLongAreRemoved) {
  const fs::path old = used(checksum("old"), 100), recent = used(checksum("recent"), 80),
                 marked = used(checksum("marked"), 100), other = used("a-model", 100);
  mark_used(marked / "part");
  tidy_folders(folder_);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(recent / "part"));
  EXPECT_TRUE(fs::exists(marked / "part"));
  EXPECT_TRUE(fs::exists(other / "part")) << "not of the cache";
}

}  // namespace
}  // namespace trainer
