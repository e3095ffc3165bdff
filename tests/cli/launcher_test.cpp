// The command line: exit codes, and what is printed on which stream.
#include <chrono>

#include <gtest/gtest.h>

#include "trainer/base/strings.h"

#include "cli/run_program.h"
#include "support/error_message.h"

namespace trainer::test {
namespace {

// A refused command: the exit code, nothing on stdout, and its words on stderr.
void expect_refused(const std::vector<std::string>& arguments, int exit_code,
                    const std::vector<std::string>& words) {
  const Outcome outcome = run_program(arguments);
  SCOPED_TRACE(outcome.err);
  EXPECT_EQ(outcome.exit_code, exit_code);
  EXPECT_EQ(outcome.out, "");
  for (const std::string& word : words) EXPECT_TRUE(contains(outcome.err, word)) << word;
}

TEST(Launcher, HelpNamesTheCommandsAtOnce) {
  auto fastest = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 10; i++) {
    const auto start = std::chrono::steady_clock::now();
    const Outcome outcome = run_program({"--help"});
    fastest = std::min(fastest, std::chrono::steady_clock::now() - start);
    ASSERT_EQ(outcome.exit_code, 0);
    for (const char* command : {"train", "config", "generate", "tokenize"}) {
      EXPECT_TRUE(contains(outcome.out, command)) << command;
    }
  }
  EXPECT_LT(fastest, std::chrono::milliseconds(50));
}

TEST(Launcher, TellsItsVersion) { EXPECT_TRUE(contains(run_program({"--version"}).out, "trainer ")); }

TEST(Launcher, HelpOfTrainListsKeysWithTheirDefaults) {
  EXPECT_TRUE(contains(run_program({"train", "--help"}).out, "training.batch_size=fit"));
}

TEST(Launcher, TrainIsMeantWithoutACommand) {
  const std::vector<std::string> words{"2 problems", "model.path: is required", "data.train: is required"};
  expect_refused({"seed=3"}, 2, words);
  expect_refused({"train"}, 2, words);
  expect_refused({"--quiet", "--config", SOURCE_DIR "/configs/robust.yaml"}, 2, words);
  expect_refused({"--config", SOURCE_DIR "/configs/robust.yaml", "batch_size=4", "--verbose"}, 2, words);
}

TEST(Launcher, WrongUseIsExplained) {
  expect_refused({}, 2, {"trainer --help"});
  expect_refused({"generat"}, 2, {"unknown command 'generat'; did you mean generate?"});
  expect_refused({"my.yaml"}, 2, {"trainer --config my.yaml"});
  expect_refused({"--config", "nope.yaml"}, 2, {"nope.yaml: there is no such file"});
  expect_refused({"config", "--colour"}, 2, {"--colour"});
  expect_refused({"generate", "--colour"}, 2, {"--colour"});
  expect_refused({"generate", "--prompt", "x"}, 2, {"MODEL (a directory) is required"});
  expect_refused({"generate", "--model", "x"}, 2, {"--input-file FILE, or --chat"});
  expect_refused({"generate", "--model", "x", "--prompt", "x", "--batch-size", "0"}, 2, {"--batch-size"});
}

TEST(Launcher, KeysTypedAsFlagsAreShownWithoutDashes) {
  expect_refused({"--training.batch_size=4"}, 2, {"without dashes: training.batch_size=4"});
  expect_refused({"train", "--config", "x.yaml", "--learning_rate", "1e-4"}, 2,
                 {"optimizer.learning_rate=1e-4"});
  expect_refused({"--config", "x.yaml", "--per_device_train_batch_size=4"}, 2, {"training.batch_size=4"});
  expect_refused({"config", "--bf16"}, 2, {"model.dtype: bf16"});
}

TEST(Launcher, ConfigPrintsWhatItReadsBack) {
  const Outcome first = run_program({"config", "--config", SOURCE_DIR "/configs/flan_t5_xl.yaml", "lora.r=64",
                                     "lora.target_modules=[q, v]", "learning_rate=7e-5"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  for (const char* line : {"\n  r: 64\n", "\n  target_modules: [q, v]\n", "\n  learning_rate: 7.0e-05\n"}) {
    EXPECT_TRUE(contains(first.out, line)) << line;
  }
  const TemporaryDirectory directory;
  std::ofstream(directory / "saved.yaml") << first.out;
  EXPECT_EQ(run_program({"config", "--config", (directory / "saved.yaml").string()}).out, first.out);
}

TEST(Launcher, ConfigPrintsTheGeneratedFiles) {
  EXPECT_EQ(run_program({"config", "--reference"}).out, content_of(SOURCE_DIR "/docs/config.md"));
  EXPECT_EQ(run_program({"config", "--schema"}).out, content_of(SOURCE_DIR "/configs/schema.json"));
}

TEST(Launcher, PresetsAreListedWithTheirPurpose) {
  const Outcome outcome = run_program({"config", "--list"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_TRUE(contains(outcome.out, "\nflan_t5_xl.yaml "));
  EXPECT_TRUE(contains(outcome.out, "Qwen3-0.6B with LoRA, on one 8 GB GPU\n"));
  EXPECT_TRUE(contains(outcome.out, concat("The files: ", SOURCE_DIR, "/configs\n")));
}

TEST(Launcher, PresetsAreFoundByName) {
  const TemporaryDirectory directory;
  const std::string robust = run_program({"config", "--config", SOURCE_DIR "/configs/robust.yaml"}).out;
  EXPECT_TRUE(contains(robust, "empty_cache_steps"));
  for (const char* name : {"robust.yaml", "configs/robust.yaml", "robust"}) {
    SCOPED_TRACE(name);
    EXPECT_EQ(run_program({"config", "--config", name}).out, robust);
    std::ofstream(directory / "my.yaml") << "extends: " << name << "\n";
    EXPECT_EQ(run_program({"config", "--config", (directory / "my.yaml").string()}).out, robust);
  }
  std::ofstream(directory / "robust.yaml") << "seed: 77\n";
  EXPECT_TRUE(
      contains(run_program({"config", "--config", (directory / "my.yaml").string()}).out, "seed: 77"));
  expect_refused({"--config", (directory / "tiny_t5.yaml").string()}, 2,
                 {"there is no such file; `trainer config --list` names the presets"});
}

}  // namespace
}  // namespace trainer::test
