// An output directory that another program has written to.
#include <fstream>
#include <map>

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

}  // namespace
}  // namespace trainer
