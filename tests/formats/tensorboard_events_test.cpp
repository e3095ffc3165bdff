#include "formats/tensorboard_events.h"

#include <gtest/gtest.h>

namespace trainer {
namespace {

std::string record_of(int64_t step) {
  TensorboardEvent event(1.5, step);
  event.add_scalar("train/loss", 0.25);
  return event.record();
}

// Made with tensorboard 2.21: RecordWriter(file).write(event_pb2.Event(...).SerializeToString()).
TEST(TensorboardEvents, ARecordIsThatOfTensorBoard) {
  const std::string expected(
      "\x20\x00\x00\x00\x00\x00\x00\x00\x29\xed\xa9\x50"  // the size and its checksum
      "\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\x03\x2a\x13\x0a\x11\x0a\x0atrain/loss\x15\x00\x00\x80\x3e"
      "\x43\x30\x1b\x92",
      48);
  EXPECT_EQ(record_of(3), expected);
}

TEST(TensorboardEvents, KeepsWholeRecordsUpToAStep) {
  const std::string head = tensorboard_version_record(1) + tensorboard_start_record(1, 1);
  const std::string file = head + record_of(1) + record_of(2) + record_of(3);
  const auto kept = [&](int64_t step) { return bytes_up_to_step(file, step); };
  EXPECT_EQ(kept(2), std::ssize(head + record_of(1) + record_of(2)));
  EXPECT_EQ(kept(9), std::ssize(file));
  EXPECT_EQ(kept(0), std::ssize(tensorboard_version_record(1)));
}

TEST(TensorboardEvents, KeepsNothingFromTheFirstDamageOn) {
  const std::string first = tensorboard_version_record(1), file = first + record_of(1) + record_of(2);
  for (size_t size = 0; size <= file.size(); size++) {
    const int64_t kept = bytes_up_to_step(std::string_view(file).substr(0, size), 9);
    EXPECT_LE(kept, static_cast<int64_t>(size));
    EXPECT_TRUE(kept == 0 || kept == std::ssize(first) || kept == std::ssize(first + record_of(1)) ||
                kept == std::ssize(file));
  }
  for (size_t at = first.size(); at < file.size() - record_of(2).size(); at++) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    EXPECT_EQ(bytes_up_to_step(damaged, 9), std::ssize(first)) << at;
  }
  EXPECT_EQ(bytes_up_to_step("", 9), 0);
  EXPECT_EQ(bytes_up_to_step("no event file, whatever its name says", 9), 0);
}

}  // namespace
}  // namespace trainer
