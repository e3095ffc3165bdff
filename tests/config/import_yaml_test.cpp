// What import-config makes of other programs' files as YAML: merge keys, aliases, and what is no YAML at all.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "config/import_config.h"
#include "support/error_message.h"
#include "support/hostile_json.h"
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

TEST_F(ImportYaml, AKeyThatComesTwiceIsRefused) {
  const std::string said = refused("base_model: x\nadapter: lora\nlearning_rate: 0.1\nlearning_rate: 0.2\n");
  EXPECT_TRUE(contains(said, "theirs.yaml:4:1: learning_rate is given twice; the first is at line 3"))
      << said;
  const std::string inner = refused("base_model: x\ndatasets:\n  - path: a\n    path: b\n");
  EXPECT_TRUE(contains(inner, "theirs.yaml:4:5: path is given twice")) << inner;
}

TEST_F(ImportYaml, AnAliasMayNotContainItself) {
  for (const char* text :
       {"base_model: &x\n  a: *x\n", "base_model: &x [*x]\n", "datasets: &x\n  - a: {b: [*x]}\n"}) {
    const std::string said = refused(text);
    EXPECT_TRUE(contains(said, "an alias (*name) inside of what it stands for")) << said;
    EXPECT_FALSE(contains(said, "\n"));
  }
}

TEST_F(ImportYaml, AliasesMayNotGrowWithoutBounds) {
  std::string text = "a: &a [x,x,x,x,x,x,x,x,x,x]\n", last = "a";
  for (const char* name : {"b", "c", "d", "e", "f", "g", "h"}) {
    text += concat(name, ": &", name, " [*", last);
    for (int i = 0; i < 9; i++) text += ", *" + last;
    text += "]\n";
    last = name;
  }
  const std::string said = refused(text + "base_model: *h\nmicro_batch_size: *h\n");
  EXPECT_TRUE(contains(said, "far more than the file has")) << said.substr(0, 200);
  EXPECT_LT(said.size(), 300u);
  // As people use them.
  const ImportedConfig fine = imported("base_model: m\nmicro_batch_size: &n 2\neval_batch_size: *n\n");
  EXPECT_TRUE(contains(fine.yaml, "batch_size: 2"));
}

TEST_F(ImportYaml, NestingWithoutEndIsRefused) {
  const std::string said = refused("base_model: " + std::string(100'000, '[') + "\n");
  EXPECT_EQ(test::foreign_words(said), "");
  EXPECT_LT(said.size(), 300u);
}

}  // namespace
}  // namespace trainer
