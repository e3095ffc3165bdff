#include "run/output_place.h"

#include <cstdlib>
#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "run/output_directory.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;
using test::TemporaryDirectory;

void open_at(const fs::path& directory, bool overwrites = false) {
  Config config;
  config.output_dir = directory.string();
  config.overwrite_output_dir = overwrites;
  OutputDirectory::open(config);
}

std::string problem_at(const fs::path& directory, bool overwrites = false) {
  return error_message<OutputDirectoryError>([&] { open_at(directory, overwrites); });
}

void put(const fs::path& path) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << "x";
}

// The working directory and HOME, as they were.
class Surroundings {
 public:
  ~Surroundings() {
    fs::current_path(here_);
    ::setenv("HOME", home_.c_str(), 1);
  }

 private:
  const fs::path here_ = fs::current_path();
  const std::string home_ = std::getenv("HOME") == nullptr ? "" : std::getenv("HOME");
};

TEST(OutputPlace, TheRootOfTheFileSystemIsRefused) {
  const Surroundings before;
  const TemporaryDirectory directory;
  fs::create_directory_symlink("/", directory / "link");
  fs::current_path("/usr");
  for (const std::string& root : {std::string("/"), std::string("//"), std::string(".."),
                                  std::string("/usr/../"), (directory / "link").string()}) {
    const std::string message = error_message<OutputDirectoryError>([&] { open_at(root); });
    EXPECT_TRUE(contains(message, "is the root of the file system; choose a folder of its own")) << message;
  }
}

TEST(OutputPlace, AHomeWithOtherFilesIsRefused) {
  const Surroundings before;
  const TemporaryDirectory home;
  ::setenv("HOME", home.path().c_str(), 1);
  open_at(home.path());
  put(home / ".bashrc");
  for (const bool overwrites : {false, true})
    EXPECT_TRUE(contains(problem_at(home.path(), overwrites), "is your home directory and holds '.bashrc'"));
  EXPECT_EQ(home.names(), std::set<std::string>{".bashrc"});
  open_at(home / "runs" / "first");
}

TEST(OutputPlace, TheRootOfTheRepositoryAroundIsRefused) {
  const Surroundings before;
  const TemporaryDirectory repository;
  put(repository / ".git" / "HEAD");
  put(repository / "src" / "main.cpp");
  EXPECT_TRUE(contains(problem_at(repository.path()), "is the root of a repository and holds 'src'"))
      << "another one than that around the working directory";
  for (const char* folder : {"", "src"}) {
    fs::current_path(repository / folder);
    EXPECT_TRUE(contains(problem_at(repository.path()), "is the root of the repository that you are in"));
  }
  EXPECT_TRUE(contains(problem_at(".."), "holds 'src'"));
  open_at(repository / "runs");
  put(repository / "trainer_position.json");  // a run was there before this was refused
  open_at(repository.path());
}

// A repository that was made for the results, such as one of the hub that is empty yet.
TEST(OutputPlace, ARepositoryWithNothingElseIsNot) {
  const TemporaryDirectory repository;
  put(repository / ".git" / "HEAD");
  put(repository / ".gitattributes");
  open_at(repository.path());
  const TemporaryDirectory worktree;
  put(worktree / ".git");  // a file that names the repository
  put(worktree / "README.md");
  EXPECT_TRUE(contains(problem_at(worktree.path()), "is the root of a repository and holds 'README.md'"));
}

TEST(OutputPlace, ADirectoryOfTheSystemIsRefused) {
  EXPECT_TRUE(contains(problem_at("/usr"), "is a directory of the system and holds 'bin'"));
}

}  // namespace
}  // namespace trainer
