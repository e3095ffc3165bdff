#include "run/output_directory.h"

#include <fstream>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"
#include "trainer/base/log.h"
#include "trainer/config/load.h"
#include "trainer/formats/run_position.h"

#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;
using test::TemporaryDirectory;

Config config_for(const fs::path& directory) {
  Config config;
  config.output_dir = directory.string();
  config.training.batch_size = 3;
  return config;
}

OutputDirectory open_run(const Config& config) {
  OutputDirectory run = OutputDirectory::open(config);
  run.begin();
  return run;
}
OutputDirectory open_only(const Config& config) { return OutputDirectory::open(config); }

std::string open_error(const Config& config) {
  const std::string message = error_message<OutputDirectoryError>([&] { open_run(config); });
  EXPECT_TRUE(contains(message, config.output_dir)) << message;
  return message;
}

void touch(const fs::path& path, const std::string& content = "x") {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << content;
}

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename().string());
  return names;
}

// Everything below a directory with its content, to see that nothing changed.
std::map<std::string, std::string> snapshot(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    files[entry.path().string()] = entry.is_regular_file() ? read_file(entry.path()) : "";
  }
  return files;
}

TEST(OutputDirectory, MakesTheDirectoryWithConfigurationLogAndMetrics) {
  TemporaryDirectory directory;
  const Config config = config_for(directory.path() / "a" / "b");
  auto run = open_run(config);
  EXPECT_EQ(run.directory(), directory.path() / "a" / "b");
  log::info("a line for the log");
  run.write({"train", {{"step", 1}, {"loss", 0.1}}});
  EXPECT_EQ(load_config(run.directory() / "config.yaml", {}).training.batch_size, 3);
  EXPECT_TRUE(contains(read_file(run.directory() / "log.txt"), "a line for the log"));
  EXPECT_EQ(read_file(run.directory() / "metrics.jsonl"), R"({"kind":"train","step":1,"loss":0.1})"
                                                          "\n");
}

TEST(OutputDirectory, TheLogFileHasWhatQuietLeavesOut) {
  TemporaryDirectory directory;
  Config config = config_for(directory.path());
  config.training.logging_steps = 1;
  auto run = open_run(config);
  log::set_level(log::Level::warning);
  ::testing::internal::CaptureStderr();
  run.write({"train", {{"step", 7}, {"loss", 0.125}}});
  const std::string shown = ::testing::internal::GetCapturedStderr();
  log::set_level(log::Level::info);
  EXPECT_EQ(shown, "");
  EXPECT_TRUE(contains(read_file(directory / "log.txt"), "step 7  loss 0.1250"));
}

TEST(OutputDirectory, ADirectoryInUseIsRefusedWithItsProcess) {
  TemporaryDirectory directory;
  Config config = config_for(directory.path());
  {
    auto run = open_run(config);
    run.write({"train", {{"step", 1}}});
    const auto before = snapshot(directory.path());
    for (bool overwrite : {false, true}) {
      config.overwrite_output_dir = overwrite;
      const std::string message = open_error(config);
      EXPECT_TRUE(contains(message, "in use by process " + std::to_string(::getpid()))) << message;
    }
    EXPECT_EQ(snapshot(directory.path()), before);
  }
  open_run(config);  // free again
}

TEST(OutputDirectory, AKilledProcessHoldsNoLock) {
  TemporaryDirectory directory;
  const Config config = config_for(directory.path());
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto run = open_run(config);
    const char byte = 1;
    if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
    ::pause();
  }
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(contains(open_error(config), "in use by process " + std::to_string(child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
  open_run(config);
}

// What a file system without locks answers, for this process.
void answer_flock_with(int error) {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{std::size(program), program};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    ::_exit(77);
}

TEST(OutputDirectory, OnAFileSystemWithoutLocksAWarningSaysSo) {
  for (const int error : {ENOLCK, ENOSYS, EOPNOTSUPP}) {
    TemporaryDirectory directory;
    EXPECT_EXIT(
        {
          answer_flock_with(error);
          open_run(config_for(directory.path())).write({"train", {{"step", 1}}});
          ::_exit(0);
        },
        ::testing::ExitedWithCode(0), "this file system has no locks .*no other run writes there");
    EXPECT_TRUE(contains(read_file(directory / "metrics.jsonl"), "train"));
  }
}

TEST(OutputDirectory, ResultsOfAnotherRunAreRefusedAndStay) {
  for (const char* name :
       {"model.safetensors", "adapter_model.safetensors", "model-00001-of-00002.safetensors",
        "model.safetensors.index.json", "checkpoint-500/config.json"}) {
    TemporaryDirectory directory;
    touch(directory / name);
    const auto before = snapshot(directory.path());
    const std::string message = open_error(config_for(directory.path()));
    EXPECT_TRUE(contains(message, fs::path(name).begin()->string())) << message;
    EXPECT_TRUE(contains(message, "overwrite_output_dir=true")) << message;
    EXPECT_EQ(snapshot(directory.path()), before);
  }
}

TEST(OutputDirectory, TheSecondStartOfARunIsRefusedWhereItMustNotGoOn) {
  TemporaryDirectory directory;
  Config config = config_for(directory.path());
  open_run(config).write({"train", {{"step", 1}}});
  const auto before = snapshot(directory.path());
  config.resume = "never";
  EXPECT_TRUE(contains(open_error(config), "metrics.jsonl"));
  EXPECT_EQ(snapshot(directory.path()), before);
  config.resume = "auto";
  EXPECT_TRUE(open_only(config).has_results());
  EXPECT_EQ(snapshot(directory.path()), before);
}

TEST(OutputDirectory, GoingOnKeepsResultsAndTheRowsBeforeAPosition) {
  TemporaryDirectory directory;
  const Config config = config_for(directory.path());
  int64_t bytes = 0;
  {
    auto run = open_run(config);
    log::info("the first start");
    run.write({"train", {{"step", 1}}});
    bytes = run.metrics_bytes();
    run.write({"train", {{"step", 2}}});
  }
  touch(directory / "checkpoint-1/model.safetensors");
  touch(directory / "model.safetensors.tmp");
  {
    auto run = open_only(config);
    RunPosition start;
    start.metrics_bytes = bytes;
    start.fixed = {{"seed", "42"}};
    run.begin(start, /*keeps_results=*/true);
    run.write({"train", {{"step", 2}, {"again", true}}});
  }
  EXPECT_EQ(read_file(directory / "metrics.jsonl"),
            "{\"kind\":\"train\",\"step\":1}\n{\"kind\":\"train\",\"step\":2,\"again\":true}\n");
  EXPECT_TRUE(contains(read_file(directory / "log.txt"), "the first start"));
  EXPECT_TRUE(fs::exists(directory / "checkpoint-1/model.safetensors"));
  EXPECT_FALSE(fs::exists(directory / "model.safetensors.tmp"));
  EXPECT_EQ(read_position(directory.path()).fixed.at("seed"), "42");
}

TEST(OutputDirectory, ARunThatFailedBeforeItsFirstStepDoesNotBlockTheNext) {
  TemporaryDirectory directory;
  const Config config = config_for(directory.path());
  {
    auto run = open_run(config);
    run.write({"memory", {{"step", 0}}});
    log::info("the first try");
  }
  touch(directory / "model.safetensors.tmp");
  auto run = open_run(config);
  EXPECT_EQ(read_file(directory / "metrics.jsonl"), "");
  EXPECT_TRUE(contains(read_file(directory / "log.txt"), "the first try"));
  EXPECT_FALSE(fs::exists(directory / "model.safetensors.tmp"));
}

TEST(OutputDirectory, OneThatEndsBeforeItBeginsLeavesEverythingAsItWas) {
  TemporaryDirectory directory;
  open_only(config_for(directory / "new/deeper"));
  EXPECT_FALSE(fs::exists(directory / "new"));
  touch(directory / "old/model.safetensors");
  touch(directory / "old/metrics.jsonl");
  const auto before = snapshot(directory.path());
  Config config = config_for(directory / "old");
  config.overwrite_output_dir = true;
  open_only(config);
  EXPECT_EQ(snapshot(directory.path()), before);
}

TEST(OutputDirectory, ItsLockIsGoneWhenItHasEnded) {
  TemporaryDirectory directory;
  open_run(config_for(directory.path()));
  EXPECT_FALSE(fs::exists(directory / ".lock"));
}

TEST(OutputDirectory, OverwritingRemovesResultsAndNothingElse) {
  TemporaryDirectory directory;
  for (const char* name :
       {"model.safetensors", "config.json", "checkpoint-5/model.safetensors", "checkpoint-6.tmp/x",
        "metrics.jsonl", "bad_steps.jsonl", "log.txt", "data.jsonl", "checkpoint-notes/x",
        "my-model/model.safetensors", "predictions/step-5.jsonl", "predictions/step-mine.jsonl",
        "report.html", "environment.json", "tensorboard/events.out.tfevents.1790000000.host.1"}) {
    touch(directory / name);
  }
  Config config = config_for(directory.path());
  config.overwrite_output_dir = true;
  config.observe.tensorboard = false;
  auto run = open_run(config);
  EXPECT_EQ(directory.names(), (std::set<std::string>{".lock", "config.yaml", "log.txt", "metrics.jsonl",
                                                      "status.json", "trainer_position.json", "data.jsonl",
                                                      "checkpoint-notes", "my-model", "predictions"}));
  EXPECT_FALSE(fs::exists(directory / "predictions/step-5.jsonl"));
  EXPECT_TRUE(fs::exists(directory / "predictions/step-mine.jsonl"));
  EXPECT_EQ(read_file(directory / "metrics.jsonl"), "");
}

TEST(OutputDirectory, FilesOfOthersDoNotStandInTheWay) {
  TemporaryDirectory directory;
  for (const char* name : {"notes.txt", "config.json", "train.jsonl"}) touch(directory / name);
  auto run = open_run(config_for(directory.path()));
  for (const char* name : {"notes.txt", "config.json", "train.jsonl"})
    EXPECT_EQ(read_file(directory / name), "x");
}

TEST(OutputDirectory, WhatItStartsFromIsNeverOverwritten) {
  TemporaryDirectory directory;
  touch(directory / "config.json");
  touch(directory / "checkpoint-5/model.safetensors");
  const auto before = snapshot(directory.path());
  Config config = config_for(directory.path());
  config.overwrite_output_dir = true;
  for (const fs::path& model :
       {directory.path(), directory / "checkpoint-5", directory / "checkpoint-5/../."}) {
    config.model.path = model.string();
    EXPECT_TRUE(contains(open_error(config), "which the run starts from"));
  }
  config.model.path = "";
  config.lora.emplace().adapter = (directory / "checkpoint-5").string();
  EXPECT_TRUE(contains(open_error(config), "which the run starts from"));
  EXPECT_EQ(snapshot(directory.path()), before);
}

TEST(OutputDirectory, WhereNothingCanBeWrittenItSaysSo) {
  TemporaryDirectory directory;
  touch(directory / "file");
  EXPECT_TRUE(contains(open_error(config_for(directory / "file")), "choose another output_dir"));
  EXPECT_TRUE(contains(open_error(config_for(directory / "file/below")), "choose another output_dir"));
  EXPECT_TRUE(contains(open_error(config_for("/proc")), "not writable"));
  EXPECT_EQ(names_in(directory.path()), std::set<std::string>{"file"});
}

TEST(Run, TheLockHoldsWhenItsFileIsRemoved) {
  TemporaryDirectory directory;
  const Config config = config_for(directory.path());
  auto run = open_run(config);
  fs::remove(directory / ".lock");
  EXPECT_TRUE(contains(open_error(config), "is in use by"));
  EXPECT_FALSE(fs::exists(directory / ".lock"));
}

TEST(Run, ALinkInPlaceOfTheLockIsNotWrittenThrough) {
  TemporaryDirectory directory;
  touch(directory / "precious", "precious");
  fs::create_symlink("precious", directory / ".lock");
  EXPECT_TRUE(contains(open_error(config_for(directory.path())), ".lock is a link"));
  EXPECT_EQ(read_file(directory / "precious"), "precious");
}

TEST(Run, OverwritingRemovesNoModelThatNoRunMade) {
  TemporaryDirectory directory;
  for (const char* name :
       {"model.safetensors", "config.json", "tokenizer.json", "checkpoint-5/model.safetensors"})
    touch(directory / name);
  const auto before = snapshot(directory.path());
  Config config = config_for(directory.path());
  config.overwrite_output_dir = true;
  const std::string message = open_error(config);
  EXPECT_TRUE(contains(message, "nothing shows that a run made it")) << message;
  EXPECT_EQ(snapshot(directory.path()), before);
}

}  // namespace
}  // namespace trainer
