// The file layer when operations fail: what is promised holds, whichever it is.
#include "trainer/base/file_faults.h"

#include <fstream>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"

#include "support/each_file_fault.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using testing::contains;
using testing::error_message;
using testing::FileFaultScope;
using testing::TemporaryDirectory;

const std::string kOld = "old", kNew(700'000, 'n');

// In pieces that are gathered, and one that is not.
void write_new(const fs::path& path) {
  write_atomically(path, [](std::ostream& out) {
    for (int i = 0; i < 300'000; i++) out.put('n');
    out << std::string(400'000, 'n');
  });
}

TEST(FileFaults, an_atomic_write_leaves_the_old_file_or_the_new_one) {
  TemporaryDirectory directory;
  const fs::path path = directory / "a";
  const int64_t operations = testing::operations_of([&] { write_new(path); });
  ASSERT_GE(operations, 9);  // open, 3 writes, sync, close, rename; the folder
  for (int64_t n = 1; n <= operations; n++) {
    for (const FileFault& fault : testing::failures_at(n)) {
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
      EXPECT_TRUE(content == kOld || content == kNew) << testing::name_of(fault);
      EXPECT_TRUE(!message.empty() || content == kNew) << testing::name_of(fault);
      EXPECT_TRUE(message.empty() || contains(message, directory.path().string())) << message;
      // Where nothing can be changed any more, the temporary file cannot be removed either.
      const bool can_remove = !fault.lasting || fault.error == ENOSPC;
      EXPECT_TRUE(!can_remove || directory.names() == std::set<std::string>{"a"}) << testing::name_of(fault);
      fs::remove(directory / "a.tmp");
    }
  }
}

TEST(FileFaults, a_write_that_takes_a_part_goes_on) {
  TemporaryDirectory directory;
  const int64_t operations = testing::operations_of([&] { write_new(directory / "a"); });
  for (int64_t n = 1; n <= operations + 1; n++) {
    fs::remove(directory / "a");
    const FileFaultScope scope({n, FaultKind::brief, 0, /*lasting=*/n == 1});
    write_new(directory / "a");
    EXPECT_EQ(read_file(directory / "a"), kNew) << n;
  }
}

TEST(FileFaults, after_the_end_of_the_process_or_of_the_power_the_file_is_the_old_or_the_new_one) {
  TemporaryDirectory directory;
  const fs::path path = directory / "a";
  const int64_t operations = testing::operations_of([&] { write_new(path); });
  int64_t new_ones = 0;
  for (const FaultKind kind : {FaultKind::crash, FaultKind::power}) {
    for (int64_t n = 1; n <= operations; n++) {
      write_atomically(path, kOld);
      EXPECT_TRUE(testing::ends_by({n, kind}, [&] { write_new(path); })) << n;
      const std::string content = read_file(path);
      EXPECT_TRUE(content == kOld || content == kNew) << n << ": " << content.size() << " bytes";
      new_ones += content == kNew;
    }
  }
  EXPECT_GT(new_ones, 0);
}

TEST(FileFaults, what_was_not_synced_is_lost_with_the_power) {
  TemporaryDirectory directory;
  const auto append_twice = [&] {
    AppendedFile file(directory / "a");
    file.append("line\n");
    file.append("line\n");
  };
  EXPECT_TRUE(testing::ends_by({3, FaultKind::power}, append_twice));
  EXPECT_EQ(read_file(directory / "a"), "");
  EXPECT_TRUE(testing::ends_by({3, FaultKind::crash}, append_twice));
  EXPECT_EQ(read_file(directory / "a"), "line\nlin");
}

TEST(AppendedFile, a_line_is_whole_or_not_there) {
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

TEST(AppendedFile, is_cut_back_to_a_size) {
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

TEST(DeleteEntry, removes_all_below_and_no_target_of_a_link) {
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

TEST(FileCalls, what_fails_is_named) {
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

TEST(ParseFileFault, reads_what_the_environment_may_say) {
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
