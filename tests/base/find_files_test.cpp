#include <array>
#include <fstream>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "base/file_facts.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;
using test::TemporaryDirectory;

constexpr std::array<std::string_view, 1> kEndings{".jsonl"};

class FindFiles : public ::testing::Test {
 protected:
  void write(const std::string& name) {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << "{}";
  }
  void link(const fs::path& target, const std::string& name) { fs::create_symlink(target, folder / name); }

  // Below the folder.
  std::vector<std::string> found() {
    std::vector<std::string> names;
    for (const fs::path& file : find_files((folder / "").string(), kEndings))
      names.push_back(file.lexically_relative(folder / "").string());
    return names;
  }
  std::string problem() {
    return error_message<DataError>([&] { found(); });
  }

  TemporaryDirectory folder;
};

using Names = std::vector<std::string>;

TEST_F(FindFiles, AreSortedAndOfTheEndings) {
  for (const char* name : {"b.jsonl", "a/z.jsonl", "c.txt", ".hidden.jsonl", ".git/x.jsonl"}) write(name);
  EXPECT_EQ(found(), (Names{"a/z.jsonl", "b.jsonl"}));
}

TEST_F(FindFiles, AFolderThatLinksToItselfIsReadOnce) {
  write("sub/one.jsonl");
  link(".", "self");
  link("..", "sub/up");
  link(folder / "sub", "other");
  EXPECT_EQ(found(), (Names{"sub/one.jsonl"}));
}

TEST_F(FindFiles, LinksToFoldersElsewhereAreFollowedOnce) {
  TemporaryDirectory elsewhere;
  std::ofstream(elsewhere / "far.jsonl") << "{}";
  write("near.jsonl");
  link(elsewhere / "", "b");
  link(elsewhere / "", "a");
  EXPECT_EQ(found(), (Names{"a/far.jsonl", "near.jsonl"}));
}

TEST_F(FindFiles, ALinkToAFileIsThatFile) {
  write("one.jsonl");
  link("one.jsonl", "two.jsonl");
  EXPECT_EQ(found(), (Names{"one.jsonl", "two.jsonl"}));
}

TEST_F(FindFiles, ALinkThatLeadsNowhereIsNoDataFileLess) {
  write("shard1.jsonl");
  link("gone.txt", "notes");
  EXPECT_EQ(found(), (Names{"shard1.jsonl"}));
  link("gone.jsonl", "shard2.jsonl");
  EXPECT_TRUE(contains(problem(), (folder / "shard2.jsonl").string() + ": a link to what is not there"))
      << problem();
}

TEST_F(FindFiles, WhatCannotBeReadIsNamed) {
  write("one.jsonl");
  link("loop", "loop");
  EXPECT_TRUE(contains(problem(), (folder / "loop").string() + ": cannot be read: Too many levels"))
      << problem();
}

TEST_F(FindFiles, APatternPassesOverWhatIsNoFolder) {
  write("one.jsonl");
  write("sub/two.jsonl");
  EXPECT_EQ(find_files((folder / "*" / "*.jsonl").string(), {}), (std::vector{folder / "sub/two.jsonl"}));
}

}  // namespace
}  // namespace trainer
