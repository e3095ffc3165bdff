#include <fstream>
#include <limits>
#include <signal.h>
#include <sys/resource.h>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"

#include "observe/file_sinks.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using nlohmann::json;
using test::contains;
using test::TemporaryDirectory;

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::vector<std::string> lines;
  std::istringstream in(read_file(path));
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(JsonlSink, ARowIsInTheFileAtOnceAndReadsBackExactly) {
  TemporaryDirectory directory;
  JsonlSink sink(directory / "m.jsonl");
  const std::vector<double> values{0.1,    1.0 / 3, 2.345678901234567,  4.9e-05, 1e300,
                                   5e-324, -0.0,    123456789.123456789};
  for (double value : values) sink.write({"train", {{"step", 1}, {"loss", value}}});
  const auto lines = lines_of(directory / "m.jsonl");
  ASSERT_EQ(lines.size(), values.size());
  for (size_t i = 0; i < values.size(); i++)
    EXPECT_EQ(json::parse(lines[i])["loss"].get<double>(), values[i]);
}

TEST(JsonlSink, KindComesFirstAndTheOrderStays) {
  TemporaryDirectory directory;
  JsonlSink sink(directory / "m.jsonl");
  sink.write({"train", {{"step", 3}, {"loss", 0.5}, {"micro_batch_sizes", {4, 4, 2}}}});
  EXPECT_EQ(read_file(directory / "m.jsonl"),
            R"({"kind":"train","step":3,"loss":0.5,"micro_batch_sizes":[4,4,2]})"
            "\n");
}

TEST(JsonlSink, WhatIsNoNumberIsNull) {
  TemporaryDirectory directory;
  JsonlSink sink(directory / "m.jsonl");
  sink.write({"train",
              {{"loss", std::numeric_limits<double>::quiet_NaN()},
               {"grad_norm", std::numeric_limits<double>::infinity()}}});
  EXPECT_EQ(read_file(directory / "m.jsonl"), R"({"kind":"train","loss":null,"grad_norm":null})"
                                              "\n");
}

TEST(JsonlSink, AppendsToWhatIsThere) {
  TemporaryDirectory directory;
  for (int step : {1, 2}) JsonlSink(directory / "m.jsonl").write({"train", {{"step", step}}});
  EXPECT_EQ(lines_of(directory / "m.jsonl").size(), 2u);
}

TEST(JsonlSink, KeepsWholeRowsAlone) {
  TemporaryDirectory directory;
  const auto path = directory / "m.jsonl";
  const std::string rows = "{\"kind\":\"train\"}\n{\"kind\":\"save\"}\n";
  const auto kept = [&](const std::string& content, int64_t bytes) {
    std::ofstream(path) << content;
    JsonlSink(path).keep_first(bytes);
    return read_file(path);
  };
  const int64_t size = std::ssize(rows);
  EXPECT_EQ(kept(rows + "later\n", size), rows);
  EXPECT_EQ(kept(rows + "{\"kind\":", size), rows);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(kept(rows + "{\"kind\":", size + 20), rows);  // someone cut it short
  EXPECT_EQ(kept("{\"kind\":", size), "");
  EXPECT_EQ(kept("", size), "");
  const std::string shown = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(shown, "rows of earlier steps are missing")) << shown;
  EXPECT_EQ(kept(rows, size - 3), "{\"kind\":\"train\"}\n");
}

TEST(JsonlSink, APathThatIsNoUtf8DoesNotEndTheRun) {
  TemporaryDirectory directory;
  JsonlSink sink(directory / "m.jsonl");
  sink.write({"save", {{"path", "\xff"}}});
  EXPECT_EQ(lines_of(directory / "m.jsonl").size(), 1u);
}

TEST(JsonlSink, AFullDiskIsWarnedOfOnceAndTheRunGoesOn) {
  JsonlSink sink("/dev/full");
  ::testing::internal::CaptureStderr();
  for (int step = 0; step < 3; step++) sink.write({"train", {{"step", step}}});
  const std::string shown = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(shown, "No space left on device")) << shown;
  EXPECT_EQ(shown.find("/dev/full"), shown.rfind("/dev/full")) << shown;
}

TEST(JsonlSink, ARowIsWholeOrMissingWhenTheDiskIsFull) {
  TemporaryDirectory directory;
  JsonlSink sink(directory / "m.jsonl");
  const MetricRow row{"train", {{"text", std::string(100, 'x')}}};
  sink.write(row);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  const rlimit limit{200, before.rlim_max};  // the second row fits by half
  ::setrlimit(RLIMIT_FSIZE, &limit);
  sink.write(row);
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(lines_of(directory / "m.jsonl").size(), 1u);
  sink.write(row);  // there is space again
  const auto lines = lines_of(directory / "m.jsonl");
  ASSERT_EQ(lines.size(), 2u);
  for (const std::string& line : lines) EXPECT_NO_THROW(json::parse(line));
}

TEST(JsonlSink, AFileThatCannotBeOpenedIsNamed) {
  TemporaryDirectory directory;
  const auto path = directory / "missing" / std::filesystem::path("m.jsonl");
  const std::string message = test::error_message<FormatError>([&] { JsonlSink sink(path); });
  EXPECT_TRUE(contains(message, path.string())) << message;
}

}  // namespace
}  // namespace trainer
