#include "observe/tensorboard_sink.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "trainer/base/files.h"

#include "support/each_file_fault.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using std::chrono::milliseconds;
using test::TemporaryDirectory;

MetricRow step_row(int64_t step) { return {"train", {{"step", step}, {"loss", 0.5}}}; }

std::vector<std::filesystem::path> files_in(const std::filesystem::path& directory) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

bool is_whole(const std::filesystem::path& file) {
  const std::string content = read_file(file);
  return bytes_up_to_step(content, 1'000'000) == std::ssize(content);
}

TEST(TensorboardSink, AFullDiskIsSaidOnceAndEventsComeAgainWhenThereIsRoom) {
  TemporaryDirectory directory;
  TensorboardSink sink(directory / "tensorboard", 0, milliseconds(0));
  sink.begin("seed: 1", {{"seed", 1}});
  sink.write(step_row(1));
  ::testing::internal::CaptureStderr();
  {
    const test::FileFaultScope full({1, FaultKind::error, ENOSPC, /*lasting=*/true});
    for (int64_t step = 2; step < 5; step++) sink.write(step_row(step));
  }
  sink.write(step_row(5));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(said.find("an event for TensorBoard is lost"), said.rfind("an event for TensorBoard is lost"));
  EXPECT_TRUE(test::contains(said, "No space left on device")) << said;
  const auto files = files_in(directory / "tensorboard");
  ASSERT_EQ(files.size(), 2u);
  for (const auto& file : files) EXPECT_TRUE(is_whole(file)) << file;
  EXPECT_TRUE(test::contains(read_file(files[1]), "train/loss"));
  EXPECT_TRUE(test::contains(read_file(files[1]), "seed: 1"));
}

TEST(TensorboardSink, DoesNotTryAgainAtEveryStep) {
  TemporaryDirectory directory;
  const test::FileFaultScope full({1, FaultKind::error, ENOSPC, /*lasting=*/true});
  TensorboardSink sink(directory / "tensorboard", 0, std::chrono::minutes(1));
  sink.begin("", {});
  sink.write(step_row(1));
  const int64_t tried = count_file_operations();
  for (int64_t step = 2; step < 50; step++) sink.write(step_row(step));
  EXPECT_EQ(count_file_operations(), tried);
}

TEST(TensorboardSink, AnyFailedOperationLeavesWholeEventsAndThrowsNothing) {
  const auto work = [](const std::filesystem::path& directory) {
    for (const int64_t done : {0, 2}) {
      TensorboardSink sink(directory / "tensorboard", done, milliseconds(0));
      sink.begin("seed: 1", {{"seed", 1}});
      for (int64_t step = done + 1; step < done + 4; step++) sink.write(step_row(step));
    }
  };
  TemporaryDirectory once;
  const int64_t operations = test::operations_of([&] { work(once.path()); });
  ASSERT_GT(operations, 8);
  for (int64_t operation = 1; operation <= operations; operation++) {
    for (const FileFault& fault : test::failures_at(operation)) {
      TemporaryDirectory directory;
      {
        const test::FileFaultScope scope(fault);
        ::testing::internal::CaptureStderr();
        EXPECT_NO_THROW(work(directory.path())) << test::name_of(fault);
        ::testing::internal::GetCapturedStderr();
      }
      if (!std::filesystem::exists(directory / "tensorboard")) continue;
      for (const auto& file : files_in(directory / "tensorboard")) {
        const std::string content = read_file(file);
        EXPECT_TRUE(content.empty() || bytes_up_to_step(content, 100) > 0) << test::name_of(fault);
      }
    }
  }
}

TEST(TensorboardSink, FilesSortInTheOrderOfTheStartsAlsoIfTheClockWasSetBack) {
  TemporaryDirectory directory;
  const auto folder = directory / "tensorboard";
  make_directories(folder);
  const auto later = folder / "events.out.tfevents.9000000000.host.1";
  write_atomically(later, tensorboard_version_record(9e9));
  TensorboardSink sink(folder, 0);
  sink.begin("", {});
  const auto files = files_in(folder);
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0], later);
}

}  // namespace
}  // namespace trainer
