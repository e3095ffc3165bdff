// Which LibTorch the program takes, and what it says of one that it cannot use.
#include <algorithm>
#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>

#include "trainer/base/strings.h"

#include "cli/run_program.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer::test {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kNeedsTorch{"plan", "model.path=qwen3-0.6b", "device=cpu"};

class FindTorch : public testing::Test {
 protected:
  ~FindTorch() override { ::unsetenv("TORCH_DIR"); }

  fs::path write(const fs::path& name, const std::string& text) {
    const fs::path path = directory_.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path;
  }

  // The program refuses TORCH_DIR=`folder`, in one line with these words, and one with the code of the error.
  static void expect_refused(const fs::path& folder, const std::vector<std::string>& words) {
    ::setenv("TORCH_DIR", folder.c_str(), 1);
    const Outcome outcome = run_program(kNeedsTorch);
    SCOPED_TRACE(outcome.err);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(
        outcome.err.substr(outcome.err.find('\n') + 1).starts_with("Help: trainer help installation"));
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 2);
    for (const std::string& word : words) EXPECT_TRUE(contains(outcome.err, word)) << word;
  }

  TemporaryDirectory directory_;
  const fs::path package_ = "env/lib/python3.12/site-packages/torch";
};

TEST_F(FindTorch, AnotherVersionIsNamedWithTheCommandOfItsEnvironment) {
  for (const char* version : {"2.10.0", "2.12.0+cu130", "2.1.1", "3.0.0"}) {
    const fs::path file = write(package_ / "version.py", concat("import x\n__version__ = '", version, "'\n"));
    expect_refused(file.parent_path(),
                   {concat("is LibTorch ", version, ", and this trainer was built for 2.11"),
                    "run: python3.12 -m pip install 'torch==2.11.*'"});
    const fs::path python = write("env/bin/python3", "");
    fs::permissions(python, fs::perms::owner_all);
    expect_refused(file.parent_path(), {concat("run: ", python.string(), " -m pip install 'torch==2.11.*'")});
    fs::remove(python);
  }
}

TEST_F(FindTorch, AnotherVersionOfAnUnpackedLibTorchIsNamed) {
  write("libtorch/build-version", "2.10.1+cpu\n");
  expect_refused(directory_ / "libtorch",
                 {"libtorch is LibTorch 2.10.1+cpu, and this trainer was built for 2.11",
                  "unpack LibTorch 2.11 there, or set TORCH_DIR"});
}

TEST_F(FindTorch, AnIncompleteOneIsNamed) {
  const fs::path version = write(package_ / "version.py", "__version__ = '2.11.0+cpu'\n");
  const fs::path folder = version.parent_path();
  expect_refused(folder, {folder.string(), "has no lib/libtorch_cpu.so",
                          "-m pip install --force-reinstall 'torch==2.11.*'"});
  write(package_ / "lib/libtorch_cpu.so",
        "\x7f"
        "ELF");
  expect_refused(folder, {"cannot open ", "libtorch_cpu.so", "file too short",
                          "-m pip install --force-reinstall 'torch==2.11.*'"});
  fs::remove(version);
  expect_refused(folder, {"does not say its version"});
}

TEST_F(FindTorch, AFolderThatIsNotThereIsNamed) {
  expect_refused(directory_ / "nope", {"TORCH_DIR: ", "nope: No such file or directory"});
  expect_refused(directory_.path(), {"has no lib/libtorch_cpu.so", "unpack LibTorch 2.11 there"});
}

TEST_F(FindTorch, CommandsWithoutTensorsNeedNone) {
  ::setenv("TORCH_DIR", (directory_ / "nope").c_str(), 1);
  EXPECT_EQ(run_program({"--help"}).exit_code, 0);
  EXPECT_EQ(run_program({"config", "--list"}).exit_code, 0);
}

TEST_F(FindTorch, AnEmptyNameIsNone) {
  ::setenv("TORCH_DIR", "", 1);
  const Outcome outcome = run_program(kNeedsTorch);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

}  // namespace
}  // namespace trainer::test
