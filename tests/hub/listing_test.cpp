#include "hub/listing.h"

#include <chrono>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/error.h"
#include "trainer/base/strings.h"

#include "support/error_message.h"

namespace trainer::hub {
namespace {

using nlohmann::json;
using test::contains;
using test::error_message;

const std::string kSha1(40, 'a'), kSha256(64, 'b');

std::string answer_with(const json& sibling) {
  return json{{"sha", kSha1}, {"siblings", json::array({sibling})}}.dump();
}

std::string problem_with(const std::string& answer) {
  return error_message<FormatError>([&] { read_listing(answer); });
}

TEST(Listing, HasTheFilesWithTheirHashes) {
  const Listing listing =
      read_listing(answer_with({{"rfilename", "a/b.bin"},
                                {"size", 134},
                                {"blobId", kSha1},
                                {"lfs", {{"sha256", kSha256}, {"size", 7'000'000'000}}}}));
  EXPECT_EQ(listing.commit, kSha1);
  ASSERT_EQ(listing.files.size(), 1);
  EXPECT_EQ(listing.files[0].path, "a/b.bin");
  EXPECT_EQ(listing.files[0].size, 7'000'000'000);
  EXPECT_EQ(listing.files[0].hash(), kSha256);
}

TEST(Listing, NothingThatTheHubNamesLeadsOutOfTheCache) {
  for (const char* path : {"../a", "/a", "a/../../b", "", ".", "a//b", "a\nb"})
    EXPECT_TRUE(contains(problem_with(answer_with({{"rfilename", path}})), "is no path in a repository"))
        << path;
  for (const char* hash : {"../../../../outside", "/outside", "weak-etag", "config.json", "A"}) {
    EXPECT_TRUE(contains(problem_with(answer_with({{"rfilename", "a"}, {"blobId", hash}})), "is no hash"))
        << hash;
    const json lfs{{"sha256", hash}};
    EXPECT_TRUE(contains(problem_with(answer_with({{"rfilename", "a"}, {"lfs", lfs}})), "is no hash"))
        << hash;
  }
  for (const char* commit : {"main", "../../../../../../../../../../../../../x", ""})
    EXPECT_EQ(problem_with(json{{"sha", commit}, {"siblings", json::array()}}.dump()), "it names no commit");
}

TEST(Listing, OtherAnswersAreRefusedInOwnWords) {
  const std::string start = concat(R"({"sha": ")", kSha1, R"(", "siblings": )");
  for (const std::string& answer :
       {std::string(), std::string("[]"), std::string("<html>"), std::string("{"),
        std::string("{\"sha\": 1e999}"), std::string("{\"sha\": 7}"), start + "7}", start + "[7]}",
        start + "[{}]}", start + "[{\"rfilename\": []}]}",
        start + R"([{"rfilename": "a"}, {"rfilename": "a"}]})",
        start + R"([{"rfilename": "a", "blobId": {}}]})",
        start + R"([{"rfilename": "a", "lfs": {"sha256": [1]}}]})"}) {
    const std::string problem = problem_with(answer);
    EXPECT_FALSE(problem.empty()) << answer;
    EXPECT_FALSE(contains(problem, "json.exception")) << problem;
  }
}

TEST(Listing, ASizeThatNoFileHasIsUnknown) {
  for (const char* size : {"-1", "18446744073709551615", "9223372036854775807", "1e30", "\"7\"", "null"}) {
    const std::string answer = concat(R"({"sha": ")", kSha1, R"(", "siblings": [{"rfilename": "a", "size": )",
                                      size, R"(, "lfs": {"size": )", size, "}}]}");
    EXPECT_EQ(read_listing(answer).files.at(0).size, -1) << size;
  }
}

TEST(Listing, IsKeptAndReadAgain) {
  Listing listing = read_listing(answer_with({{"rfilename", "a/b"}, {"size", 3}, {"blobId", kSha1}}));
  const Listing again = read_tree(tree_text(listing), listing.commit);
  ASSERT_EQ(again.files.size(), 1);
  EXPECT_EQ(again.files[0].path, "a/b");
  EXPECT_EQ(again.files[0].blob_id, kSha1);
  listing.files[0].size = -1;
  EXPECT_EQ(tree_text(listing), "");
}

TEST(Listing, WhatIsKeptIsCheckedToo) {
  const auto tree = [](const char* path, const std::string& hash) {
    return json{{"format_version", 1}, {"files", {{path, {{"size", 3}, {"blob_id", hash}}}}}}.dump();
  };
  const CheckedName commit = CheckedName::commit(kSha1).value();
  EXPECT_EQ(read_tree(tree("a", kSha1), commit).files.size(), 1);
  for (const std::string& text : {tree("../a", kSha1), tree("a", "../a"), tree("a", ""), std::string("{}"),
                                  std::string("[]"), std::string(R"({"format_version": 2, "files": {}})")})
    EXPECT_FALSE(error_message<FormatError>([&] { read_tree(text, commit); }).empty()) << text;
}

TEST(Listing, TakesLinearTime) {
  std::string answer = concat(R"({"sha": ")", kSha1, R"(", "siblings": [)");
  for (int i = 0; i < 100'000; i++)
    answer += concat(i > 0 ? "," : "", R"({"rfilename": "data/part-)", i,
                     R"(.parquet", "size": 3, "blobId": ")", kSha1, "\"}");
  const auto start = std::chrono::steady_clock::now();
  const Listing listing = read_listing(answer + "]}");
  EXPECT_EQ(read_tree(tree_text(listing), listing.commit).files.size(), 100'000);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace trainer::hub
