// The file layer keeps its promises whichever file operation fails.
#include <fstream>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"

#include "base/file_calls.h"
#include "support/each_file_fault.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;
using test::FileFaultScope;
using test::TemporaryDirectory;

const std::string kOld = "old", kNew(700'000, 'n');

// In pieces that are gathered, and one that is not.
void write_new(const fs::path& path) {
  write_atomically(path, [](std::ostream& out) {
    for (int i = 0; i < 300'000; i++) out.put('n');
    out << std::string(400'000, 'n');
  });
}

TEST(FileFaults, AnAtomicWriteLeavesTheOldFileOrTheNewOne) {
  TemporaryDirectory directory;
  const fs::path path = directory / "a";
  const int64_t operations = test::operations_of([&] { write_new(path); });
  ASSERT_GE(operations, 9);  // open, 3 writes, sync, close, rename; the folder
  for (int64_t n = 1; n <= operations; n++) {
    for (const FileFault& fault : test::failures_at(n)) {
      write_atomically(path, kOld);
      std::string message;
      {
        const FileFaultScope scope(fault);
        try {
          write_new(path);
        } catch (const FormatError& e) {
          message = e.what();
        }
      }
      const std::string content = read_file(path);
      EXPECT_TRUE(content == kOld || content == kNew) << test::name_of(fault);
      EXPECT_TRUE(!message.empty() || content == kNew) << test::name_of(fault);
      EXPECT_TRUE(message.empty() || contains(message, directory.path().string())) << message;
      // Where nothing can be changed any more, the temporary file cannot be removed either.
      const bool can_remove = !fault.lasting || fault.error == ENOSPC;
      EXPECT_TRUE(!can_remove || directory.names() == std::set<std::string>{"a"}) << test::name_of(fault);
      fs::remove(directory / "a.tmp");
    }
  }
}

TEST(FileFaults, AWriteThatTakesAPartGoesOn) {
  TemporaryDirectory directory;
  const int64_t operations = test::operations_of([&] { write_new(directory / "a"); });
  for (int64_t n = 1; n <= operations + 1; n++) {
    fs::remove(directory / "a");
    const FileFaultScope scope({n, FaultKind::brief, 0, /*lasting=*/n == 1});
    write_new(directory / "a");
    EXPECT_EQ(read_file(directory / "a"), kNew) << n;
  }
}

TEST(FileFaults, AfterTheEndOfTheProcessOrOfThePowerTheFileIsTheOldOrTheNewOne) {
  TemporaryDirectory directory;
  const fs::path path = directory / "a";
  const int64_t operations = test::operations_of([&] { write_new(path); });
  int64_t new_ones = 0;
  for (const FaultKind kind : {FaultKind::crash, FaultKind::power}) {
    for (int64_t n = 1; n <= operations; n++) {
      write_atomically(path, kOld);
      EXPECT_TRUE(test::ends_by({n, kind}, [&] { write_new(path); })) << n;
      const std::string content = read_file(path);
      EXPECT_TRUE(content == kOld || content == kNew) << n << ": " << content.size() << " bytes";
      new_ones += content == kNew;
    }
  }
  EXPECT_GT(new_ones, 0);
}

TEST(FileFaults, WhatWasNotSyncedIsLostWithThePower) {
  TemporaryDirectory directory;
  const auto append_twice = [&] {
    AppendedFile file(directory / "a");
    file.append("line\n");
    file.append("line\n");
  };
  EXPECT_TRUE(test::ends_by({3, FaultKind::power}, append_twice));
  EXPECT_EQ(read_file(directory / "a"), "");
  EXPECT_TRUE(test::ends_by({3, FaultKind::crash}, append_twice));
  EXPECT_EQ(read_file(directory / "a"), "line\nlin");
}

TEST(AppendedFile, ALineIsWholeOrNotThere) {
  TemporaryDirectory directory;
  for (int64_t n = 1; n <= 3; n++) {
    AppendedFile file(directory / "a");
    file.truncate(0);
    file.append("first\n");
    for (const FileFault& fault : {FileFault{1, FaultKind::cut}, FileFault{1, FaultKind::error, EIO}}) {
      const FileFaultScope scope(fault);
      const std::string message = error_message<FormatError>([&] { file.append("lost\n"); });
      EXPECT_TRUE(contains(message, (directory / "a").string())) << message;
    }
    {
      const FileFaultScope scope({1, FaultKind::brief, 0, /*lasting=*/true});
      file.append("second\n");
    }
    EXPECT_EQ(read_file(directory / "a"), "first\nsecond\n");
  }
}

TEST(AppendedFile, IsCutBackToASize) {
  TemporaryDirectory directory;
  AppendedFile file(directory / "a");
  file.append("first\n");
  const int64_t size = file.size();
  file.append("second\n");
  file.truncate(size);
  file.append("third\n");
  file.sync();
  EXPECT_EQ(read_file(directory / "a"), "first\nthird\n");
}

TEST(DeleteEntry, RemovesAllBelowAndNoTargetOfALink) {
  TemporaryDirectory directory;
  make_directories(directory / "tree/one/two");
  write_atomically(directory / "kept", "x");
  write_atomically(directory / "tree/one/a", "x");
  fs::create_symlink(directory / "kept", directory / "tree/link");
  fs::create_directory_symlink(directory.path(), directory / "tree/folder");
  delete_entry(directory / "tree");
  delete_entry(directory / "tree");  // no longer there
  EXPECT_EQ(directory.names(), std::set<std::string>{"kept"});
}

TEST(FileCalls, WhatFailsIsNamed) {
  TemporaryDirectory directory;
  make_directories(directory / "a");
  const auto message_of = [&](const std::function<void()>& work) {
    const FileFaultScope scope({1, FaultKind::error, EACCES});
    return error_message<FormatError>(work);
  };
  for (const std::function<void()>& work : std::vector<std::function<void()>>{
           [&] { make_directories(directory / "b/c"); }, [&] { delete_entry(directory / "a"); },
           [&] { move_entry(directory / "a", directory / "b"); }, [&] { sync_entry(directory / "a"); },
           [&] { AppendedFile(directory / "a/b"); }}) {
    const std::string message = message_of(work);
    EXPECT_TRUE(contains(message, directory.path().string())) << message;
    EXPECT_TRUE(contains(message, "Permission denied")) << message;
  }
  EXPECT_EQ(directory.names(), std::set<std::string>{"a"});
}

TEST(ParseFileFault, ReadsWhatTheEnvironmentMaySay) {
  const FileFault fault = parse_file_fault("17+:EIO");
  EXPECT_EQ(fault.operation, 17);
  EXPECT_EQ(fault.error, EIO);
  EXPECT_TRUE(fault.lasting);
  EXPECT_EQ(parse_file_fault("3:crash").kind, FaultKind::crash);
  for (const char* text : {"", "x", "0:EIO", "3", "3:", "3:EXYZ", "3+", "-1:EIO"}) {
    const std::string message = error_message<ConfigError>([&] { parse_file_fault(text); });
    EXPECT_TRUE(contains(message, "TRAINER_FILE_FAULT")) << text;
  }
}

}  // namespace
}  // namespace trainer
