#include "hub/cache.h"

#include <chrono>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "hub/blob_download.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer::hub {
namespace {

using test::contains;
using test::error_message;
using namespace std::chrono_literals;

TEST(Cache, ARevisionDoesNotLeadOutOfIt) {
  const test::TemporaryDirectory cache;
  for (const char* revision : {"../../../x", "/x", "a/../../../x", "a\nb", ".."}) {
    const Name name{Kind::model, "a/b", revision, ""};
    const std::string problem = error_message<FormatError>([&] { CachedRepository(cache.path(), name); });
    EXPECT_TRUE(contains(problem, "the revision is no branch, tag or commit")) << problem;
  }
}

TEST(Cache, WhatAReferenceHoldsIsACommitOrNothing) {
  const test::TemporaryDirectory cache;
  const auto file = cache / "models--a--b" / "refs" / "main";
  std::filesystem::create_directories(file.parent_path());
  const CachedRepository repository(cache.path(), {Kind::model, "a/b", "", ""});
  std::ofstream(file) << "../../outside";
  EXPECT_TRUE(repository.commit().empty());
  std::ofstream(file) << std::string(40, 'a');
  EXPECT_EQ(repository.commit(), std::string(40, 'a'));
}

TEST(Cache, TheNameOfContentWithoutAHashIsMadeHere) {
  const CheckedName commit = CheckedName::commit(std::string(40, 'a')).value();
  const auto name = [&](const char* path) {
    return name_without_hash(commit, CheckedName::path(path).value());
  };
  EXPECT_EQ(name("a").text().size(), 64);
  EXPECT_EQ(name("a"), name("a"));
  EXPECT_NE(name("a"), name("b"));
}

TEST(Cache, ALockWhoseHolderDoesNothingIsNotWaitedForForEver) {
  const test::TemporaryDirectory folder;
  const auto file = folder / "x.lock", blob = folder / "x";
  const BlobLock held(file, "x", blob);
  const auto wait = [&] { BlobLock(file, "x", blob, 300ms); };
  EXPECT_TRUE(contains(error_message<FormatError>(wait), "has downloaded nothing for"));
}

TEST(Cache, ALockWhoseHolderDownloadsIsWaitedFor) {
  const test::TemporaryDirectory folder;
  const auto file = folder / "x.lock", blob = folder / "x";
  auto held = std::make_unique<BlobLock>(file, "x", blob);
  std::jthread holder([&] {
    for (int i = 0; i < 20; i++) {
      std::ofstream(folder / "x.incomplete", std::ios::app) << "bytes";
      std::this_thread::sleep_for(100ms);
    }
    held.reset();
  });
  EXPECT_TRUE(BlobLock(file, "x", blob, 1s).is_exclusive());
}

}  // namespace
}  // namespace trainer::hub
