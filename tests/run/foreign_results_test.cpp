// An output directory that another program has written to.
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/files.h"

#include "run/output_directory.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;

std::map<std::string, std::string> contents(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    files[entry.path().string()] = entry.is_regular_file() ? read_file(entry.path()) : "";
  return files;
}

TEST(ForeignResults, AreNamedAndKept) {
  const test::TemporaryDirectory directory;
  fs::create_directories(directory / "checkpoint-2");
  for (const char* file :
       {"checkpoint-2/optimizer.pt", "checkpoint-2/config.json", "checkpoint-2/model.safetensors",
        "trainer_state.json", "model.safetensors", "training_args.bin"})
    std::ofstream(directory / file) << "x";
  const auto before = contents(directory.path());
  Config config;
  config.output_dir = directory.path().string();
  for (const bool overwrite : {false, true}) {
    config.overwrite_output_dir = overwrite;
    const std::string message =
        test::error_message<OutputDirectoryError>([&] { OutputDirectory::open(config); });
    EXPECT_TRUE(
        contains(message, "holds checkpoint-2 of another program, Hugging Face's Trainer (optimizer.pt)"))
        << message;
    EXPECT_TRUE(contains(message, "checkpoint-2: give it as model.path")) << message;
  }
  EXPECT_EQ(contents(directory.path()), before);
}

std::string said_at(const fs::path& directory, bool overwrite) {
  Config config;
  config.output_dir = directory.string();
  config.overwrite_output_dir = overwrite;
  return test::error_message<OutputDirectoryError>([&] { OutputDirectory::open(config); });
}

TEST(ForeignResults, OfProgramsWithOtherNamesAreNamedAndKept) {
  struct Case {
    std::vector<const char*> files;
    std::string said;
  };
  const std::vector<Case> cases{
      {{"epoch_0/model-00001-of-00001.safetensors", "epoch_1/model-00001-of-00001.safetensors",
        "epoch_1/config.json"},
       "holds epoch_1 of another program, torchtune;"},
      {{"epoch_0/adapter_model.safetensors", "epoch_0/adapter_config.json", "recipe_state/recipe_state.pt"},
       "holds epoch_0 of another program, torchtune;"},
      {{"step_9/optimizer.bin", "step_10/model.safetensors", "step_10/optimizer.bin"},
       "holds step_10 of another program, Hugging Face's Accelerate (optimizer.bin)"},
      {{"epoch_3/random_states_0.pkl"}, "holds epoch_3 of another program, Hugging Face's Accelerate"},
      {{"last.ckpt"}, "holds last.ckpt of another program, Lightning;"},
      {{"lightning_logs/version_0/checkpoints/epoch=0-step=10.ckpt"},
       "holds lightning_logs/version_0/checkpoints/epoch=0-step=10.ckpt of another program, Lightning;"},
      {{"global_step100/mp_rank_00_model_states.pt", "latest"},
       "holds global_step100 of another program, DeepSpeed"}};
  for (const Case& one : cases) {
    const test::TemporaryDirectory directory;
    for (const char* file : one.files) {
      fs::create_directories((directory / file).parent_path());
      std::ofstream(directory / file) << "x";
    }
    const auto before = contents(directory.path());
    for (const bool overwrite : {false, true})
      EXPECT_TRUE(contains(said_at(directory.path(), overwrite), one.said))
          << said_at(directory.path(), overwrite);
    EXPECT_EQ(contents(directory.path()), before);
  }
  const test::TemporaryDirectory directory;
  fs::create_directories(directory / "epoch_1");
  std::ofstream(directory / "epoch_1/config.json") << "x";
  std::ofstream(directory / "epoch_1/model.safetensors") << "x";
  EXPECT_TRUE(
      contains(said_at(directory.path(), false), "epoch_1: give it as model.path to start from its weights"));
}

TEST(ForeignResults, FoldersWithSuchNamesAndWithoutCheckpointsAreNone) {
  const test::TemporaryDirectory directory;
  fs::create_directories(directory / "epoch_1");
  fs::create_directories(directory / "step_plots");
  std::ofstream(directory / "epoch_1/notes.txt") << "x";
  std::ofstream(directory / "step_plots/optimizer.bin") << "x";
  Config config;
  config.output_dir = directory.path().string();
  OutputDirectory::open(config);
}

}  // namespace
}  // namespace trainer
