#include <cstring>
#include <fstream>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "base/file_calls.h"
#include "base/special_files.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;
using test::TemporaryDirectory;

TEST(ScratchFile, IsZerosThatCanBeWrittenAndHasNoName) {
  TemporaryDirectory directory;
  const auto file = ScratchFile::create(directory.path(), 10'000);
  ASSERT_EQ(file->size(), 10'000U);
  for (size_t i = 0; i < file->size(); i++) ASSERT_EQ(file->data()[i], std::byte{0});
  std::memset(file->data(), 7, file->size());
  EXPECT_EQ(file->data()[9'999], std::byte{7});
  EXPECT_TRUE(directory.names().empty());
}

TEST(ScratchFile, TheMissingDirectoryIsNamed) {
  TemporaryDirectory directory;
  const std::string message =
      error_message<FormatError>([&] { ScratchFile::create(directory / "missing", 10); });
  EXPECT_TRUE(contains(message, (directory / "missing").string())) << message;
}

TEST(ScratchFile, TooLittleRoomIsAnErrorAtOnceThatSaysHowMuch) {
  TemporaryDirectory directory;
  const std::string message =
      error_message<FormatError>([&] { ScratchFile::create(directory.path(), size_t{1} << 60); });
  EXPECT_TRUE(contains(message, "no room for a file of 1152921")) << message;
  EXPECT_TRUE(contains(message, " free: ")) << message;
  EXPECT_TRUE(directory.names().empty());
}

// Opening, removing the name, allocating, closing.
TEST(ScratchFile, EachOperationThatFailsIsAnErrorAndLeavesNoNameBehind) {
  for (int64_t operation = 1; operation <= 3; operation++) {
    TemporaryDirectory directory;
    set_file_fault(FileFault{.operation = operation, .error = ENOSPC});
    const std::string message =
        error_message<FormatError>([&] { ScratchFile::create(directory.path(), 10); });
    set_file_fault(std::nullopt);
    EXPECT_TRUE(contains(message, directory.path().string())) << message;
    remove_scratch_files(directory.path());
    EXPECT_TRUE(directory.names().empty()) << operation;
  }
}

TEST(ScratchFile, NamesOfKilledProcessesAreRemovedAndNothingElse) {
  TemporaryDirectory directory;
  std::ofstream(directory / ".trainer-offload-1-0") << "";
  std::ofstream(directory / "metrics.jsonl") << "{}";
  remove_scratch_files(directory.path());
  EXPECT_EQ(directory.names(), std::set<std::string>{"metrics.jsonl"});
}

TEST(ScratchFile, TwoProcessesShareADirectory) {
  TemporaryDirectory directory;
  const auto mine = ScratchFile::create(directory.path(), 100);
  remove_scratch_files(directory.path());  // as another run does when it starts
  mine->data()[99] = std::byte{1};
  const auto other = ScratchFile::create(directory.path(), 100);
  EXPECT_EQ(other->data()[99], std::byte{0});
}

}  // namespace
}  // namespace trainer
