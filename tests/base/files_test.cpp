#include "trainer/base/files.h"

#include <fstream>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;
using test::TemporaryDirectory;

// Files of this process cannot grow beyond `bytes` while it lives: a full disk without one.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  sighandler_t handler_;
};

TEST(WriteAtomically, ReplacesTheFileAndLeavesNothingElse) {
  TemporaryDirectory directory;
  write_atomically(directory / "a", "first");
  write_atomically(directory / "a", "second");
  EXPECT_EQ(read_file(directory / "a"), "second");
  EXPECT_EQ(directory.names(), std::set<std::string>{"a"});
}

TEST(WriteAtomically, WhenTheDiskIsFullTheOldFileStaysWhole) {
  TemporaryDirectory directory;
  write_atomically(directory / "a", "old");
  const std::string large(200'000, 'x');
  const FileSizeLimit limit(100'000);
  const std::string message = error_message<FormatError>([&] { write_atomically(directory / "a", large); });
  EXPECT_TRUE(contains(message, (directory / "a").string())) << message;
  EXPECT_TRUE(contains(message, "the file size limit is reached (ulimit -f)")) << message;
  EXPECT_EQ(read_file(directory / "a"), "old");
  EXPECT_EQ(directory.names(), std::set<std::string>{"a"});
}

TEST(WriteAtomically, WhenTheWriterFailsTheOldFileStaysWhole) {
  TemporaryDirectory directory;
  write_atomically(directory / "a", "old");
  EXPECT_THROW(write_atomically(directory / "a",
                                [](std::ostream& out) {
                                  out << "half";
                                  throw FormatError("stopped");
                                }),
               FormatError);
  EXPECT_EQ(read_file(directory / "a"), "old");
  EXPECT_EQ(directory.names(), std::set<std::string>{"a"});
}

TEST(WriteAtomically, NamesTheFileWhereNothingCanBeWritten) {
  TemporaryDirectory directory;
  const fs::path below_a_file = directory / "file" / fs::path("a");
  write_atomically(directory / "file", "");
  for (const fs::path& path : {below_a_file, fs::path("/proc/a"), directory / "missing" / fs::path("a")}) {
    const std::string message = error_message<FormatError>([&] { write_atomically(path, "x"); });
    EXPECT_TRUE(contains(message, path.string())) << message;
  }
}

TEST(WriteAtomically, FailsInAReadOnlyDirectory) {
  if (::geteuid() == 0) GTEST_SKIP() << "root writes everywhere";
  TemporaryDirectory directory;
  fs::permissions(directory.path(), fs::perms::owner_read | fs::perms::owner_exec);
  const std::string message = error_message<FormatError>([&] { write_atomically(directory / "a", "x"); });
  fs::permissions(directory.path(), fs::perms::owner_all);
  EXPECT_TRUE(contains(message, "Permission denied")) << message;
  EXPECT_TRUE(directory.names().empty());
}

TEST(WriteAtomically, DoesNotReplaceADirectory) {
  TemporaryDirectory directory;
  fs::create_directory(directory / "a");
  EXPECT_THROW(write_atomically(directory / "a", "x"), FormatError);
  EXPECT_EQ(directory.names(), std::set<std::string>{"a"});
}

TEST(MappedFile, HoldsTheBytesOfTheFile) {
  TemporaryDirectory directory;
  const std::string content("one\0two", 7);
  write_atomically(directory / "a", content);
  const auto file = MappedFile::open(directory / "a");
  EXPECT_EQ(file->text(), content);
  EXPECT_EQ(file->path(), directory / "a");
}

TEST(MappedFile, WritesToTheMemoryNeverReachTheFile) {
  TemporaryDirectory directory;
  write_atomically(directory / "a", "abc");
  const auto file = MappedFile::open(directory / "a");
  file->data()[0] = std::byte{'x'};
  EXPECT_EQ(file->text(), "xbc");
  EXPECT_EQ(read_file(directory / "a"), "abc");
}

TEST(MappedFile, OutlivesTheReplacementOfTheFile) {
  TemporaryDirectory directory;
  write_atomically(directory / "a", "old");
  const auto file = MappedFile::open(directory / "a");
  write_atomically(directory / "a", "new");
  EXPECT_EQ(file->text(), "old");
}

TEST(MappedFile, AnEmptyFileIsEmpty) {
  TemporaryDirectory directory;
  write_atomically(directory / "a", "");
  EXPECT_EQ(MappedFile::open(directory / "a")->size(), 0u);
}

TEST(MappedFile, WhatIsNoFileIsNamed) {
  TemporaryDirectory directory;
  const std::string missing = error_message<FormatError>([&] { MappedFile::open(directory / "a"); });
  EXPECT_TRUE(contains(missing, (directory / "a").string())) << missing;
  EXPECT_TRUE(contains(missing, "No such file")) << missing;
  const std::string folder = error_message<FormatError>([&] { MappedFile::open(directory.path()); });
  EXPECT_TRUE(contains(folder, directory.path().string())) << folder;
}

TEST(ReadFile, WhatCannotBeReadIsNamed) {
  TemporaryDirectory directory;
  for (const fs::path& path : {directory / "missing", directory.path()}) {
    const std::string message = error_message<FormatError>([&] { read_file(path); });
    EXPECT_TRUE(contains(message, path.string())) << message;
    EXPECT_FALSE(contains(message, "Success")) << message;
  }
}

// A named pipe without a writer would be waited for without end.
TEST(OpenRegularFile, RefusesByNameWhatIsNoRegularFile) {
  TemporaryDirectory directory;
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0666), 0);
  fs::create_symlink("pipe", directory / "link");
  fs::create_symlink("nowhere", directory / "dangling");
  fs::create_symlink("circle", directory / "circle");
  fs::create_directory(directory / "folder");
  const std::map<fs::path, std::string> refused{
      {directory / "pipe", "is a named pipe, not a regular file"},
      {directory / "link", "is a named pipe, not a regular file"},
      {directory / "dangling", "is a link to nowhere, which is not there"},
      {directory / "circle", "is a link that leads back to itself"},
      {directory / "folder", "is a directory, not a file"},
      {"/dev/zero", "is a device, not a regular file"}};
  for (const auto& [path, expected] : refused) {
    for (const std::string& message :
         {error_message<FormatError>([&, &path = path] { read_file(path); }),
          error_message<FormatError>([&, &path = path] { MappedFile::open(path); })}) {
      EXPECT_EQ(message, path.string() + ": " + expected);
    }
  }
}

TEST(OpenRegularFile, FollowsLinksToFiles) {
  TemporaryDirectory directory;
  write_atomically(directory / "a", std::string(200'000, 'x'));
  fs::create_symlink("a", directory / "link");
  EXPECT_EQ(read_file(directory / "link"), std::string(200'000, 'x'));
  EXPECT_EQ(MappedFile::open(directory / "link")->size(), 200'000u);
}

}  // namespace
}  // namespace trainer
