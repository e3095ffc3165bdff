// What the page of `trainer ui` finds and reads, and that nothing in a request names a file.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "support/temporary_directory.h"
#include "ui/live_runs.h"
#include "ui/plan_choices.h"
#include "ui/run_index.h"
#include "ui/site.h"

namespace trainer::ui {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using test::TemporaryDirectory;

const std::string kTokenOfSite(32, 'a');

void put(const fs::path& file, const std::string& text, std::ios::openmode mode = std::ios::trunc) {
  fs::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary | mode) << text;
}

std::string step_row(int step) {
  return R"({"kind":"train","step":)" + std::to_string(step) +
         R"(,"loss":2.5,"step_seconds":1,"tokens":10})" + "\n";
}

HttpResponse get(Site& site, const std::string& path,
                 const std::multimap<std::string, std::string>& query = {}) {
  return site.answer({"GET", "/" + kTokenOfSite + path, "127.0.0.1", "", query, ""});
}
Json json_of(const HttpResponse& response) { return Json::parse(response.body); }

TEST(UiRuns, AMetricsFileIsReadFurther) {
  const TemporaryDirectory directory(test::memory_path());
  put(directory / "metrics.jsonl", step_row(1) + step_row(2));
  RunReader reader(directory.path());
  EXPECT_EQ(reader.read(ReportedState::unknown)["step"], 2);
  // A line that is being written comes with its rest, once.
  const std::string third = step_row(3);
  put(directory / "metrics.jsonl", third.substr(0, 20), std::ios::app);
  EXPECT_EQ(reader.read(ReportedState::unknown)["step"], 2);
  put(directory / "metrics.jsonl", third.substr(20), std::ios::app);
  put(directory / "metrics.jsonl", step_row(4).substr(0, step_row(4).size() - 1), std::ios::app);
  Json run = reader.read(ReportedState::unknown);
  EXPECT_EQ(run["step"], 4);
  put(directory / "metrics.jsonl", "\n" + step_row(5), std::ios::app);
  run = reader.read(ReportedState::unknown);
  EXPECT_EQ(run["train"]["step"], Json::parse("[1, 2, 3, 4, 5]"));
  EXPECT_EQ(run["last"]["tokens"], 50);
  EXPECT_EQ(run, read_run(directory.path(), ReportedState::unknown));
}

TEST(UiRuns, AMetricsFileThatWasCutOrReplacedIsReadAnew) {
  const TemporaryDirectory directory(test::memory_path());
  put(directory / "metrics.jsonl", step_row(1) + step_row(2) + step_row(3));
  RunReader reader(directory.path());
  EXPECT_EQ(reader.read(ReportedState::unknown)["step"], 3);
  put(directory / "metrics.jsonl", step_row(1));
  EXPECT_EQ(reader.read(ReportedState::unknown)["train"]["step"], Json::parse("[1]"));
  put(directory / "metrics.jsonl", step_row(7) + step_row(8));
  EXPECT_EQ(reader.read(ReportedState::unknown)["train"]["step"], Json::parse("[7, 8]"));
}

TEST(UiRuns, TheLogComesInWholeLines) {
  const TemporaryDirectory directory(test::memory_path());
  EXPECT_EQ(read_log(directory.path(), -1)["text"], "");
  put(directory / "log.txt", "one\ntwo\nthr");
  Json log = read_log(directory.path(), -1);
  EXPECT_EQ(log["text"], "one\ntwo\n");
  put(directory / "log.txt", "ee\n", std::ios::app);
  log = read_log(directory.path(), log["to"]);
  EXPECT_EQ(log["text"], "three\n");
  EXPECT_EQ(log["skipped"], false);
  EXPECT_EQ(read_log(directory.path(), log["to"])["text"], "");
  put(directory / "log.txt", "anew\n");  // shorter: another start
  log = read_log(directory.path(), log["to"]);
  EXPECT_EQ(log["text"], "anew\n");
  EXPECT_EQ(log["skipped"], true);
  put(directory / "log.txt", std::string(300'000, 'x') + "\n" + std::string(300'000, 'y') + "\nlast\n");
  log = read_log(directory.path(), 0);
  EXPECT_EQ(log["text"], "last\n");
  EXPECT_EQ(log["skipped"], true);
}

TEST(UiRuns, RunsAreFoundByWordsNewestFirst) {
  const TemporaryDirectory directory(test::memory_path());
  for (int i = 0; i < 25; i++) {
    const fs::path file =
        directory / ("group" + std::to_string(i % 2)) / ("run-" + std::to_string(i)) / "metrics.jsonl";
    put(file, step_row(i));
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(100 - i));
  }
  RunIndex index({directory.path()});
  const RunPage page = index.page("", 0, 10);
  EXPECT_EQ(page.total, 25u);
  ASSERT_EQ(page.runs.size(), 10u);
  EXPECT_EQ(page.runs[0].name, "group0/run-24");
  EXPECT_EQ(page.runs[1].name, "group1/run-23");
  EXPECT_EQ(index.page("", 20, 10).runs.size(), 5u);
  const RunPage found = index.page("GROUP1/run-2", 0, 10);
  EXPECT_EQ(found.found, 2u);  // 21 and 23
  const auto run = index.find(found.runs[0].id);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->name, "group1/run-23");
  fs::remove_all(run->path);
  EXPECT_FALSE(index.find(run->id)) << "it is no longer there";
}

TEST(UiRuns, NothingInARequestIsAPath) {
  const TemporaryDirectory directory(test::memory_path());
  put(directory / "runs" / "one" / "metrics.jsonl", step_row(1));
  put(directory / "secret" / "metrics.jsonl", step_row(1));
  put(directory / "secret" / "log.txt", "secret\n");
  Site site(kTokenOfSite, {directory / "runs"});
  const Json list = json_of(get(site, "/api/runs"));
  ASSERT_EQ(list["runs"].size(), 1u);
  const std::string id = list["runs"][0]["id"];
  EXPECT_EQ(json_of(get(site, "/api/run", {{"id", id}}))["runs"][0]["name"], "one");
  for (const std::string& other :
       {std::string("one"), std::string("../secret"), (directory / "secret").string(), id + "/../../secret",
        std::string("."), std::string("/etc"), std::string()}) {
    for (const char* path : {"/api/run", "/api/log", "/api/chat"}) {
      const HttpResponse response = get(site, path, {{"id", other}});
      EXPECT_EQ(response.status, 404) << path << " " << other;
      EXPECT_EQ(json_of(response)["error"], "This run is no longer there.");
    }
  }
  for (const char* path :
       {"/../secret/log.txt", "/ui.js/..", "/log.txt", "/api/../ui.js", "/src/ui/site.cpp", "/%2e%2e/"})
    EXPECT_EQ(get(site, path).status, 404) << path;
}

TEST(UiRuns, AnAnswerWithoutNewsIsShort) {
  const TemporaryDirectory directory(test::memory_path());
  put(directory / "metrics.jsonl", step_row(1));
  Site site(kTokenOfSite, {directory.path()});
  const std::string id = json_of(get(site, "/api/runs"))["runs"][0]["id"];
  const Json first = json_of(get(site, "/api/run", {{"id", id}}));
  const std::string stamp = first["stamp"];
  EXPECT_EQ(json_of(get(site, "/api/run", {{"id", id}, {"since", stamp}}))["same"], true);
  put(directory / "metrics.jsonl", step_row(2), std::ios::app);
  const Json next = json_of(get(site, "/api/run", {{"id", id}, {"since", stamp}}));
  EXPECT_NE(next["stamp"], stamp);
  EXPECT_EQ(next["runs"][0]["step"], 2);
}

TEST(UiRuns, EveryAnswerHasTheHeadersThatKeepItSafe) {
  const TemporaryDirectory directory(test::memory_path());
  Site site(kTokenOfSite, {directory.path()});
  for (const char* path : {"/", "/ui.js", "/ui.css", "/api/runs", "/nothing", "", "/api/run"}) {
    const HttpResponse response = get(site, path);
    std::map<std::string, std::string> headers(response.headers.begin(), response.headers.end());
    EXPECT_NE(headers["Content-Security-Policy"].find("script-src 'self'"), std::string::npos) << path;
    EXPECT_EQ(headers["Content-Security-Policy"].find("unsafe"), std::string::npos) << path;
    EXPECT_EQ(headers["X-Content-Type-Options"], "nosniff") << path;
    EXPECT_FALSE(headers.contains("Access-Control-Allow-Origin")) << path;
  }
}

TEST(UiRuns, OnlyRunsThatRunHereCanBeStopped) {
  RunStatus status;
  status.state = RunPhase::finished;
  EXPECT_NE(stop_run(status).find("not running"), std::string::npos);
  status.state = RunPhase::running;
  status.process = own_identity();
  status.process.host = "another-machine";
  EXPECT_NE(stop_run(status).find("another-machine"), std::string::npos);
  // This test is a process of this user that lives, and no program named trainer: a status.json can say
  // anything.
  status.process = own_identity();
  EXPECT_NE(stop_run(status).find("no process of trainer"), std::string::npos);
  status.process.pid = 1 << 22;  // beyond the largest number of a process
  EXPECT_NE(stop_run(status).find("gone"), std::string::npos);
}

TEST(UiPlan, ChoicesBecomeArgumentsAndNothingElseDoes) {
  const fs::path before = fs::current_path();
  fs::current_path(SOURCE_DIR);  // configs/models is looked for there, or beside the program
  const Json choices = plan_choices();
  EXPECT_GT(choices["models"].size(), 20u);
  const auto arguments = plan_arguments(
      {{"model", "qwen2.5-7b"}, {"method", "qlora"}, {"length", "4096"}, {"batch", "64"}, {"update", "8"}});
  const auto has = [&](const std::string& word) {
    return std::ranges::find(arguments, word) != arguments.end();
  };
  for (const char* word :
       {"model.path=qwen2.5-7b", "model.quantize=nf4", "data.max_length=4096", "training.batch_size=8",
        "training.effective_batch_size=8", "memory.gradient_checkpointing=true"})
    EXPECT_TRUE(has(word)) << word;
  using Bad = std::multimap<std::string, std::string>;
  for (const Bad& bad :
       {Bad{{"model", "/etc/passwd"}}, Bad{{"model", "../configs"}}, Bad{},
        Bad{{"model", "qwen2.5-7b"}, {"method", "lora output_dir=/tmp"}},
        Bad{{"model", "qwen2.5-7b"}, {"length", "-1"}}, Bad{{"model", "qwen2.5-7b"}, {"length", "1e9"}},
        Bad{{"model", "qwen2.5-7b"}, {"batch", "4 x=y"}}})
    EXPECT_THROW(plan_arguments(bad), ConfigError);
  fs::current_path(before);
}

}  // namespace
}  // namespace trainer::ui
