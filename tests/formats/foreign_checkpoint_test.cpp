// Checkpoints of other programs are named as such.
#include "formats/foreign_checkpoint.h"

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "formats/checkpoint_fixture.h"
#include "support/error_message.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::error_message;
using test::TemporaryDirectory;

void fill(const fs::path& directory, const std::vector<const char*>& names) {
  fs::create_directories(directory);
  for (const char* name : names) write_atomically(directory / name, "x");
}

TEST(ForeignCheckpoint, IsNamedWithWhatToDo) {
  const TemporaryDirectory scratch;
  const auto refused = [&](const std::vector<const char*>& names) {
    fs::remove_all(scratch / "checkpoint-2");
    fill(scratch / "checkpoint-2", names);
    const std::string message =
        error_message<FormatError>([&] { read_checkpoint(scratch / "checkpoint-2"); });
    EXPECT_TRUE(message.starts_with((scratch / "checkpoint-2").string() + ": is ")) << message;
    return message.substr((scratch / "checkpoint-2").string().size() + 5);
  };
  EXPECT_EQ(
      refused({"config.json", "model.safetensors", "optimizer.pt", "trainer_state.json"}),
      "a checkpoint of another program, Hugging Face's Trainer (optimizer.pt); no run can resume from it: "
      "give it as model.path to start from its weights");
  EXPECT_EQ(
      refused({"adapter_config.json", "adapter_model.safetensors", "rng_state_0.pth"}),
      "a checkpoint of another program, Hugging Face's Trainer (rng_state_0.pth); no run can resume from "
      "it: give it as lora.adapter to start from its adapter");
  for (const auto& [file, program] :
       std::vector<std::pair<const char*, std::string>>{{"zero_to_fp32.py", "DeepSpeed"},
                                                        {"__0_0.distcp", "PyTorch"},
                                                        {"recipe_state.pt", "torchtune"},
                                                        {"random_states_0.pkl", "Hugging Face's Accelerate"},
                                                        {"last.ckpt", "Lightning"}}) {
    EXPECT_TRUE(refused({file}).starts_with("a checkpoint of another program, " + program)) << file;
    EXPECT_TRUE(test::contains(refused({file}), "it has no weights that can be read")) << file;
  }
  EXPECT_EQ(
      refused({"config.json", "model-00001-of-00002.safetensors"}),
      "a model, not a checkpoint of a run; no run can resume from it: give it as model.path to start from "
      "its weights");
}

TEST(ForeignCheckpoint, IsNoneOfThisProgramEvenIfItIsDamaged) {
  const TemporaryDirectory output;
  test::save_checkpoint(output.path(), 3);
  EXPECT_EQ(foreign_program(output / "checkpoint-3"), "");
  fs::remove(output / "checkpoint-3" / kManifestFile);
  EXPECT_EQ(foreign_program(output / "checkpoint-3"), "");
  EXPECT_TRUE(test::contains(error_message<FormatError>([&] { read_checkpoint(output / "checkpoint-3"); }),
                             concat(kManifestFile, ": is missing")));
}

}  // namespace
}  // namespace trainer
