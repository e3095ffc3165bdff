#include "formats/run_status.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "base/special_files.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::TemporaryDirectory;

constexpr double kNow = 1'000'000;

RunStatus running_here() {
  RunStatus status;
  status.state = RunPhase::running;
  status.model = "/models/t5";
  status.step = 10;
  status.total_steps = 40;
  status.loss = 1.5;
  status.seconds_left = 60;
  status.updated = kNow - 5;
  status.process = own_identity();
  return status;
}

void write(const fs::path& directory, const RunStatus& status) {
  ASSERT_TRUE(write_note(directory / kStatusFile, to_json(status).dump()));
}

void write_metrics(const fs::path& directory, const std::string& rows) {
  std::ofstream(directory / "metrics.jsonl") << rows;
}

TEST(RunStatus, SaysWhatTheRunHasWritten) {
  const TemporaryDirectory directory;
  write(directory.path(), running_here());
  const RunStatus status = read_run_status(directory.path(), kNow);
  EXPECT_EQ(to_json(status), to_json(running_here()));
}

TEST(RunStatus, RowsOfMetricsThatAreNewerCount) {
  const TemporaryDirectory directory;
  write(directory.path(), running_here());
  write_metrics(directory.path(),
                R"({"kind":"train","step":9,"loss":9.0}
{"kind":"train","step":11,"loss":1.25,"learning_rate":1e-4}
{"kind":"eval","step":11,"eval_loss":2.5}
{"kind":"save","step":11}
{"kind":"train","step":12,"loss":null}
{"kind":"train","st)");
  const RunStatus status = read_run_status(directory.path(), kNow);
  EXPECT_EQ(status.step, 12);
  EXPECT_EQ(status.loss, 1.25) << "the last number";
  EXPECT_EQ(status.eval_loss, 2.5);
  EXPECT_EQ(status.evaluation_step, 11);
  EXPECT_EQ(status.saved_step, 11);
}

TEST(RunStatus, AProcessThatIsGoneWasKilled) {
  const TemporaryDirectory directory;
  RunStatus gone = running_here();
  gone.process.start--;  // the number belongs to another process now
  write(directory.path(), gone);
  const RunStatus status = read_run_status(directory.path(), kNow);
  EXPECT_EQ(status.state, RunPhase::killed);
  EXPECT_FALSE(status.seconds_left);
}

TEST(RunStatus, ARunElsewhereRunsWhileItIsHeardOf) {
  const TemporaryDirectory directory;
  RunStatus status = running_here();
  status.process.host += "-2";
  write(directory.path(), status);
  EXPECT_EQ(read_run_status(directory.path(), kNow).state, RunPhase::running);
  EXPECT_EQ(read_run_status(directory.path(), kNow - 100).state, RunPhase::running) << "its clock is ahead";
  EXPECT_EQ(read_run_status(directory.path(), kNow + 100).state, RunPhase::silent);
}

TEST(RunStatus, ALockOfALivingProcessMeansThatARunStarts) {
  const TemporaryDirectory directory;
  const ProcessIdentity own = own_identity();
  std::ofstream(directory.path() / ".lock") << "process " << own.pid << " on " << own.host << "\n";
  EXPECT_EQ(read_run_status(directory.path(), kNow).state, RunPhase::starting);
  RunStatus before = running_here();
  before.state = RunPhase::stopped;
  before.process.pid = own.pid + 1;
  write(directory.path(), before);
  EXPECT_EQ(read_run_status(directory.path(), kNow).state, RunPhase::starting) << "it resumes";
}

TEST(RunStatus, DamagedFilesCountAsNone) {
  const TemporaryDirectory directory;
  write_metrics(directory.path(), "{\"kind\":\"train\",\"step\":3}\nnonsense\n[1]\n");
  for (const char* text : {"", "{", "[]", "{\"state\": 3, \"step\": \"x\", \"loss\": {}}"}) {
    ASSERT_TRUE(write_note(directory.path() / kStatusFile, text));
    const RunStatus status = read_run_status(directory.path(), kNow);
    EXPECT_EQ(status.state, RunPhase::unknown) << text;
    EXPECT_EQ(status.step, 3) << text;
  }
}

TEST(RunStatus, PipesAreNotWaitedFor) {
  const TemporaryDirectory directory;
  for (const char* name : {"metrics.jsonl", kStatusFile})
    ASSERT_EQ(::mkfifo((directory / name).c_str(), 0600), 0);
  EXPECT_EQ(read_run_status(directory.path(), kNow).state, RunPhase::unknown);
}

TEST(RunStatus, OtherDirectoriesAreRefused) {
  const TemporaryDirectory directory;
  EXPECT_THROW(read_run_status(directory.path(), kNow), FormatError);
  EXPECT_THROW(read_run_status(directory.path() / "none", kNow), FormatError);
}

TEST(FindRuns, FindsThoseBelowButNotInsideRuns) {
  const TemporaryDirectory directory;
  for (const char* name : {"b", "a/deep", "a/deep/checkpoint-1", "none", ".hidden"})
    fs::create_directories(directory.path() / name);
  for (const char* name : {"b", "a/deep", "a/deep/checkpoint-1", ".hidden"})
    write_metrics(directory.path() / name, "");
  EXPECT_EQ(find_runs(directory.path()),
            (std::vector<fs::path>{directory.path() / "a/deep", directory.path() / "b"}));
  EXPECT_TRUE(find_runs(directory.path() / "nowhere").empty());
}

TEST(NoteFile, WhatCannotBeWrittenStaysAsItWas) {
  const TemporaryDirectory directory;
  EXPECT_TRUE(write_note(directory.path() / "note", "one"));
  fs::create_directory(directory.path() / "note.tmp");  // in the way
  EXPECT_FALSE(write_note(directory.path() / "note", "two"));
  std::string text;
  std::ifstream(directory.path() / "note") >> text;
  EXPECT_EQ(text, "one");
  EXPECT_FALSE(write_note(directory.path() / "missing" / "note", "one"));
}

}  // namespace
}  // namespace trainer
