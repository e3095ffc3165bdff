#include "hub/name.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "support/temporary_directory.h"

namespace trainer::hub {
namespace {

const std::string kCommit = "0123456789abcdef0123456789abcdef01234567";

TEST(HubName, ReadsModels) {
  const auto name = parse_name(Kind::model, "google/flan-t5-xl@refs/pr/3");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->id, "google/flan-t5-xl");
  EXPECT_EQ(name->revision, "refs/pr/3");
  EXPECT_EQ(name->text(), "google/flan-t5-xl@refs/pr/3");
  EXPECT_EQ(parse_name(Kind::model, "hf://Qwen/Qwen2.5-7B")->text(), "Qwen/Qwen2.5-7B");
}

TEST(HubName, ReadsDataSetsWithPaths) {
  const auto name = parse_name(Kind::dataset, "tatsu-lab/alpaca@v1/data/train.jsonl");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->id, "tatsu-lab/alpaca");
  EXPECT_EQ(name->revision, "v1");
  EXPECT_EQ(name->path, "data/train.jsonl");
  EXPECT_EQ(parse_name(Kind::dataset, "a/b@refs/convert/parquet/default/train")->revision,
            "refs/convert/parquet");
  EXPECT_EQ(parse_name(Kind::dataset, "a/b@refs/convert/parquet/default/train")->path, "default/train");
  EXPECT_EQ(parse_name(Kind::dataset, "hf://datasets/a/b/*.jsonl")->path, "*.jsonl");
}

TEST(HubName, OtherTextsAreNoNames) {
  for (const char* text : {"", "model", "/models/a", "./a/b", "../a/b", "~/a/b", "a/b/c", "a/b@", "a/..",
                           "a/b@../c", "a b/c", "a/b@x y", "a//b", "https://huggingface.co/a/b"})
    EXPECT_FALSE(parse_name(Kind::model, text)) << text;
  for (const char* text : {"a/b/../c", "a/b@/c", "a/b@x/../../c"})
    EXPECT_FALSE(parse_name(Kind::dataset, text)) << text;
}

// The working directory is one with the folder runs/first in it.
class InFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(directory_ / "runs" / "first");
    std::filesystem::current_path(directory_.path());
  }
  void TearDown() override { std::filesystem::current_path(before_); }

  const std::filesystem::path before_ = std::filesystem::current_path();
  test::TemporaryDirectory directory_;
};

TEST_F(InFolder, WhatIsThereIsNoName) {
  EXPECT_FALSE(find_name(Kind::model, "runs/first"));
  EXPECT_TRUE(find_name(Kind::model, "google/flan-t5-xl"));
}

TEST_F(InFolder, AMistypedPathIsNoName) {
  EXPECT_FALSE(find_name(Kind::model, "runs/frist"));
  EXPECT_FALSE(find_name(Kind::dataset, "data/train.jsonl"));
  EXPECT_FALSE(find_name(Kind::dataset, "data/train.csv.gz"));
  EXPECT_TRUE(find_name(Kind::model, "hf://runs/frist"));
  EXPECT_TRUE(find_name(Kind::model, "runs/frist@" + kCommit));
}

TEST_F(InFolder, PathsInTheCacheHaveNames) {
  ::setenv("HF_HUB_CACHE", (directory_ / "cache").c_str(), 1);
  const auto model = directory_ / "cache" / "models--google--flan-t5-xl" / "snapshots" / kCommit;
  EXPECT_EQ(name_of(model)->text(), "google/flan-t5-xl@" + kCommit);
  EXPECT_EQ(name_of(model / "")->text(), "google/flan-t5-xl@" + kCommit);
  EXPECT_EQ(shown(model.string()), "google/flan-t5-xl@0123456");
  const auto data = directory_ / "cache" / "datasets--a--b-c" / "snapshots" / kCommit / "x" / "y.jsonl";
  EXPECT_EQ(name_of(data)->text(), "a/b-c@" + kCommit + "/x/y.jsonl");
  EXPECT_EQ(parse_name(Kind::dataset, name_of(data)->text())->text(), name_of(data)->text());
  for (const auto& other : {directory_ / "runs", directory_ / "cache" / "other", directory_ / "cache",
                            directory_ / "cache" / "models--a--b" / "blobs" / kCommit})
    EXPECT_FALSE(name_of(other)) << other;
  EXPECT_EQ(shown("runs/first"), "runs/first");
  ::unsetenv("HF_HUB_CACHE");
}

}  // namespace
}  // namespace trainer::hub
