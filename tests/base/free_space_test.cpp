#include <gtest/gtest.h>

#include "base/file_facts.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;

TEST(FreeSpace, IsAskedOfTheFolderInWhichADirectoryWillBeMade) {
  const test::TemporaryDirectory directory;
  EXPECT_EQ(existing_part(directory.path()), directory.path());
  EXPECT_EQ(existing_part(directory / "new" / "below"), directory.path());
  EXPECT_EQ(existing_part("not there"), fs::current_path());
  EXPECT_GT(free_space(existing_part(directory / "new")), 0);
}

TEST(FreeSpace, FoldersOfOneFileSystemShareADisk) {
  const test::TemporaryDirectory directory;
  fs::create_directory(directory / "inside");
  EXPECT_TRUE(share_a_disk(directory.path(), directory / "inside"));
  EXPECT_FALSE(share_a_disk(directory.path(), "/proc"));
  EXPECT_FALSE(share_a_disk(directory.path(), directory / "not there"));
}

}  // namespace
}  // namespace trainer
