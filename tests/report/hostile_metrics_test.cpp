// The page of a run whose files are damaged, or have rows of another program: it is made, and no library's
// word is in it.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "report/report.h"
#include "support/hostile_json.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

using test::TemporaryDirectory;

void put(const std::filesystem::path& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
}

const std::string kTrain =
    R"({"kind":"train","step":1,"epoch":0.5,"loss":2.5,"learning_rate":0.001,"step_seconds":1,"tokens":10,)"
    R"("skipped":1,"spike":2,"memory_peak":5})";

TEST(HostileMetrics, AFileWithoutARowIsNamedOnThePage) {
  const TemporaryDirectory directory(test::memory_path());
  put(directory / "metrics.jsonl", "no row\nneither\n");
  const auto run = read_run(directory.path(), ReportedState::unknown);
  ASSERT_EQ(run["problems"].size(), 1u) << run["problems"];
  EXPECT_EQ(run["problems"][0], "metrics.jsonl: none of its 2 lines is a row of a run");
  put(directory / "metrics.jsonl", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n");
  const std::string said = read_run(directory.path(), ReportedState::unknown)["problems"][0];
  EXPECT_TRUE(said.starts_with("metrics.jsonl: is the pointer of Git LFS")) << said;
  put(directory / "metrics.jsonl", "no row\n" + kTrain + "\n");
  EXPECT_EQ(read_run(directory.path(), ReportedState::unknown)["problems"].size(), 0u);
}

TEST(HostileMetrics, EveryRowIsShownOrPassedOver) {
  const TemporaryDirectory directory(test::memory_path());
  for (const std::string& row :
       {kTrain, std::string(R"({"kind":"eval","step":1,"eval_loss":2.5,"eval_seconds":1,"more":{"a":[1]}})"),
        std::string(R"({"kind":"save","step":1,"seconds":2,"path":"out/checkpoint-1"})"),
        std::string(R"({"kind":"memory","weights":5})"),
        std::string(R"({"kind":"recovery","message":"x"})")}) {
    test::for_each_hostile(row, [&](const std::string& text, const std::string& what) {
      put(directory / "metrics.jsonl", kTrain + "\n" + text + "\n" + kTrain);
      nlohmann::ordered_json run;
      EXPECT_EQ(test::wrong_words([&] { run = read_run(directory.path(), ReportedState::unknown); }), "")
          << what;
      ASSERT_TRUE(run.is_object()) << what;
      EXPECT_EQ(run["step"], 1) << what;
      run.dump();
    });
  }
}

TEST(HostileMetrics, OtherFilesAreNamedWithoutForeignWords) {
  const TemporaryDirectory directory(test::memory_path());
  put(directory / "metrics.jsonl", kTrain + "\n");
  std::filesystem::create_directory(directory / "predictions");
  for (const char* name : {"environment.json", "data_report.json", "config.yaml", "predictions/step-1.jsonl",
                           "status.json", "trainer_state.json"}) {
    for (const std::string& text : test::malformed(R"({"origin":"a:1","input":"b","prediction":"c"})")) {
      put(directory / name, text);
      nlohmann::ordered_json run;
      EXPECT_EQ(test::wrong_words([&] { run = read_run(directory.path(), ReportedState::unknown); }), "");
      for (const auto& problem : run["problems"])
        EXPECT_EQ(test::foreign_words(problem.get<std::string>()), "") << problem;
      run.dump();
    }
    std::filesystem::remove(directory / name);
  }
}

}  // namespace
}  // namespace trainer
