// What import-config makes of other programs' files as YAML: merge keys, and what is no YAML at all.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "config/import_config.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::contains;

class ImportYaml : public ::testing::Test {
 protected:
  ImportedConfig imported(const std::string& text) const {
    std::ofstream(directory_ / "theirs.yaml", std::ios::binary) << text;
    return import_config(directory_ / "theirs.yaml");
  }
  std::string refused(const std::string& text) const {
    return test::error_message<ConfigError>([&] { imported(text); });
  }

  const test::TemporaryDirectory directory_;
};

TEST_F(ImportYaml, MergeKeysAreApplied) {
  const ImportedConfig axolotl = imported(
      "x-common: &common {micro_batch_size: 3, learning_rate: 1e-3}\n"
      "<<: *common\nbase_model: m\nlearning_rate: 2e-3\nadapter: lora\n"
      "datasets:\n"
      "  - &first {path: a.jsonl, type: chat_template, roles_to_train: [user]}\n"
      "  - {<<: *first, path: b.jsonl}\n");
  EXPECT_TRUE(contains(axolotl.yaml, "batch_size: 3")) << axolotl.yaml;
  EXPECT_TRUE(contains(axolotl.yaml, "learning_rate: 0.002")) << axolotl.yaml;
  EXPECT_TRUE(contains(axolotl.yaml, "train: [a.jsonl, b.jsonl]")) << axolotl.yaml;
  for (const std::string& line : axolotl.left_out) {
    EXPECT_FALSE(contains(line, "<<")) << line;
    EXPECT_FALSE(contains(line, "datasets.type")) << line;  // that of the second data set is the merged one
    EXPECT_FALSE(contains(line, "is not known here") && contains(line, "datasets")) << line;
  }
  const ImportedConfig torchtune = imported(
      "optimizer: &base {_component_: torch.optim.AdamW, lr: 3e-4}\nbatch_size: 2\n"
      "dataset: {_component_: torchtune.datasets.alpaca_dataset, data_files: a.jsonl}\n"
      "extra: &extra {epochs: 7}\n<<: *extra\n");
  EXPECT_TRUE(contains(torchtune.yaml, "num_train_epochs: 7")) << torchtune.yaml;
  EXPECT_TRUE(contains(refused("base_model: m\ndatasets:\n  - <<: a.jsonl\n"),
                       "theirs.yaml:3:5: << stands before an alias of a mapping"));
}

TEST_F(ImportYaml, FilesOfOtherKindsAreNamed) {
  EXPECT_TRUE(contains(refused("\x1f\x8b\x08"), "theirs.yaml: is compressed with gzip; unpack it"));
  EXPECT_TRUE(contains(refused("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"));
}

}  // namespace
}  // namespace trainer
