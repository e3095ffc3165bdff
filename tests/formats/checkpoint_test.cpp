#include "trainer/formats/checkpoint.h"

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "base/checksum.h"
#include "formats/checkpoint_fixture.h"
#include "support/error_message.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_message;
using test::find_newest;
using test::overwrite;
using test::save_checkpoint;
using test::TemporaryDirectory;

using Names = std::set<std::string>;

TEST(CheckpointWriter, WhatIsCommittedIsFoundWithItsFiles) {
  TemporaryDirectory out;
  save_checkpoint(out.path(), 5);
  const Checkpoint saved = save_checkpoint(out.path(), 10);
  EXPECT_EQ(out.names(), (Names{"checkpoint-10", "checkpoint-5"}));
  const auto found = find_newest(out.path());
  EXPECT_EQ(found.step(), 10);
  EXPECT_TRUE(found.skipped.empty());
  EXPECT_EQ(found.checkpoint->path, out / "checkpoint-10");
  EXPECT_EQ(found.checkpoint->files, saved.files);
  EXPECT_EQ(found.checkpoint->files.size(), 6u);
  EXPECT_EQ(found.checkpoint->files.at("empty"), 0);
  EXPECT_EQ(read_optimizer_state(found.checkpoint->path).steps_taken, 10);
}

TEST(CheckpointWriter, OneThatIsNotCommittedLeavesNothing) {
  TemporaryDirectory out;
  {
    CheckpointWriter writer(out.path(), 5);
    test::fill_checkpoint(writer.directory(), 5);
    EXPECT_EQ(out.names(), Names{"checkpoint-5.tmp"});
    EXPECT_TRUE(checkpoint_steps(out.path()).empty());
  }
  EXPECT_TRUE(out.names().empty());
}

TEST(CheckpointWriter, ReplacesOneOfTheSameStep) {
  TemporaryDirectory out;
  save_checkpoint(out.path(), 5);
  overwrite(out / "checkpoint-5/empty", "damaged");
  save_checkpoint(out.path(), 5);
  EXPECT_EQ(out.names(), Names{"checkpoint-5"});
  EXPECT_EQ(find_newest(out.path()).step(), 5);
}

TEST(CheckpointWriter, ReplacesAFileOrALinkAndFollowsNone) {
  TemporaryDirectory out, elsewhere;
  overwrite(out / "checkpoint-3", "a file");
  fs::create_directory_symlink(out / "nothing", out / "checkpoint-5");
  overwrite(elsewhere / "kept", "of someone else");
  fs::create_directory_symlink(elsewhere.path(), out / "checkpoint-7");
  for (const int64_t step : {3, 5, 7}) {
    save_checkpoint(out.path(), step);
    EXPECT_FALSE(fs::is_symlink(checkpoint_path(out.path(), step)));
    EXPECT_EQ(find_newest(out.path()).step(), step);
  }
  EXPECT_EQ(out.names(), (Names{"checkpoint-3", "checkpoint-5", "checkpoint-7"}));
  EXPECT_EQ(elsewhere.names(), Names{"kept"});
}

TEST(CheckpointWriter, RefusesLinksOutOfIt) {
  TemporaryDirectory out;
  CheckpointWriter writer(out.path(), 5);
  fs::create_directory_symlink(out.path(), writer.directory() / "link");
  EXPECT_TRUE(contains(error_message<FormatError>([&] { writer.commit(); }), "link"));
}

TEST(VerifyModelFiles, NamesWhatIsDamagedAndNeedsNoOptimizer) {
  TemporaryDirectory out;
  save_checkpoint(out.path(), 5);
  const fs::path checkpoint = out / "checkpoint-5";
  fs::remove(checkpoint / "optimizer.safetensors");
  EXPECT_NO_THROW(verify_model_files(checkpoint));
  std::string bytes = read_file(checkpoint / "adapter_model.safetensors");
  bytes.back() ^= 1;
  overwrite(checkpoint / "adapter_model.safetensors", bytes);
  const std::string message = error_message<FormatError>([&] { verify_model_files(checkpoint); });
  EXPECT_TRUE(
      contains(message, "checkpoint-5/adapter_model.safetensors: its bytes do not match the checksum"))
      << message;
  EXPECT_TRUE(contains(message, "trainer_manifest.json is removed")) << message;
  fs::remove(checkpoint / "trainer_manifest.json");
  EXPECT_NO_THROW(verify_model_files(checkpoint));
}

TEST(NewestCompleteCheckpoint, IsNoneWhereThereIsNone) {
  TemporaryDirectory out;
  EXPECT_FALSE(find_newest(out / "missing").checkpoint);
  fs::create_directory(out / "checkpoint-x");
  fs::create_directory(out / "checkpoint-05");
  fs::create_directory(out / "checkpoint--1");
  fs::create_directory(out / "checkpoint-99999999999999999999");
  const auto found = find_newest(out.path());
  EXPECT_FALSE(found.checkpoint);
  EXPECT_TRUE(found.skipped.empty());
}

TEST(NewestCompleteCheckpoint, NamesWhatIsNoDirectory) {
  TemporaryDirectory out;
  save_checkpoint(out.path(), 5);
  overwrite(out / "checkpoint-7", "a file");
  fs::create_directory_symlink(out / "nothing", out / "checkpoint-9");
  const auto found = find_newest(out.path());
  EXPECT_EQ(found.step(), 5);
  ASSERT_EQ(found.skipped.size(), 2u);
  EXPECT_TRUE(contains(found.skipped[0], "checkpoint-9: is a link, but not to a directory"))
      << found.skipped[0];
  EXPECT_TRUE(contains(found.skipped[1], "checkpoint-7: is a file, not a directory")) << found.skipped[1];
  EXPECT_EQ(checkpoint_steps(out.path()), std::vector<int64_t>{5});
}

TEST(NewestCompleteCheckpoint, SaysThatAManifestIsADirectory) {
  TemporaryDirectory out;
  const fs::path manifest = save_checkpoint(out.path(), 5).path / "trainer_manifest.json";
  fs::remove(manifest);
  fs::create_directory(manifest);
  const auto found = find_newest(out.path());
  ASSERT_EQ(found.skipped.size(), 1u);
  EXPECT_TRUE(contains(found.skipped[0], "trainer_manifest.json: is a directory, not a file"))
      << found.skipped[0];
}

TEST(NewestCompleteCheckpoint, SaysWhatACheckpointOfAnotherProgramLacks) {
  TemporaryDirectory out;
  save_checkpoint(out.path(), 5);
  fs::create_directory(out / "checkpoint-7");
  const auto found = find_newest(out.path());
  EXPECT_EQ(found.step(), 5);
  ASSERT_EQ(found.skipped.size(), 1u);
  EXPECT_TRUE(contains(found.skipped[0], "checkpoint-7/trainer_manifest.json: is missing"))
      << found.skipped[0];
}

TEST(NewestCompleteCheckpoint, PassesOverOneWithoutANeededFile) {
  TemporaryDirectory out;
  save_checkpoint(out.path(), 5);
  {
    CheckpointWriter writer(out.path(), 7);
    write_atomically(writer.directory() / "adapter_model.safetensors", "weights only");
    writer.commit();
  }
  EXPECT_EQ(find_newest(out.path()).step(), 7);
  const auto found = find_newest(out.path(), {kPositionFile});
  EXPECT_EQ(found.step(), 5);
  ASSERT_EQ(found.skipped.size(), 1u);
  EXPECT_TRUE(contains(found.skipped[0], "checkpoint-7: has no trainer_position.json")) << found.skipped[0];
}

TEST(NewestCompleteCheckpoint, NoticesOneUnderAnotherName) {
  TemporaryDirectory out;
  save_checkpoint(out.path(), 5);
  fs::copy(out / "checkpoint-5", out / "checkpoint-9", fs::copy_options::recursive);
  const auto found = find_newest(out.path());
  EXPECT_EQ(found.step(), 5);
  ASSERT_EQ(found.skipped.size(), 1u);
  EXPECT_TRUE(contains(found.skipped[0], "is a checkpoint of step 5")) << found.skipped[0];
}

TEST(ReadCheckpoint, ANewerFormatIsNamed) {
  TemporaryDirectory out;
  save_checkpoint(out.path(), 5);
  const fs::path manifest = out / "checkpoint-5/trainer_manifest.json";
  std::string text = read_file(manifest);
  const std::string version = "\"format_version\": 1";
  text.replace(text.find(version), version.size(), "\"format_version\": 2");
  const size_t digits = text.find(": \"") + 3;
  text.replace(digits, 16, 16, '0');
  text.replace(digits, 16, checksum(text));
  overwrite(manifest, text);
  const std::string message = error_message<FormatError>([&] { read_checkpoint(out / "checkpoint-5"); });
  EXPECT_TRUE(contains(message, "format_version 2 is not known")) << message;
}

// Every bit of the manifest, and every seventh one of each other file.
TEST(ReadCheckpoint, AFlippedBitInAnyFileIsNoticedAndNamed) {
  TemporaryDirectory out(test::memory_path());
  save_checkpoint(out.path(), 5);
  const Checkpoint newest = save_checkpoint(out.path(), 6);
  std::vector<std::string> names{kManifestFile};
  for (const auto& [name, bytes] : newest.files) names.push_back(name);
  for (const std::string& name : names) {
    const fs::path path = newest.path / name;
    const std::string good = read_file(path);
    const size_t stride = name == kManifestFile ? 1 : 7;
    for (size_t bit = 0; bit < 8 * good.size(); bit += stride) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
      overwrite(path, bad);
      const std::string message = error_message<FormatError>([&] { read_checkpoint(newest.path); });
      ASSERT_TRUE(contains(message, path.string())) << name << ", bit " << bit << ": " << message;
    }
    EXPECT_EQ(find_newest(out.path()).step(), good.empty() ? 6 : 5) << name;
    overwrite(path, good);
  }
  EXPECT_EQ(find_newest(out.path()).step(), 6);
}

TEST(ReadCheckpoint, AFileCutShortMadeLongerOrMissingIsNoticedAndNamed) {
  TemporaryDirectory out(test::memory_path());
  save_checkpoint(out.path(), 5);
  const Checkpoint newest = save_checkpoint(out.path(), 6);
  std::vector<std::string> names{kManifestFile};
  for (const auto& [name, bytes] : newest.files) names.push_back(name);
  for (const std::string& name : names) {
    const fs::path path = newest.path / name;
    const std::string good = read_file(path);
    const auto expect_named = [&](const std::string& what) {
      const auto found = find_newest(out.path());
      EXPECT_EQ(found.step(), 5) << name << " " << what;
      ASSERT_EQ(found.skipped.size(), 1u) << name << " " << what;
      EXPECT_TRUE(contains(found.skipped[0], path.string())) << found.skipped[0];
    };
    for (size_t size = 0; size < good.size(); size += 1 + good.size() / 50) {
      overwrite(path, good.substr(0, size));
      expect_named("cut to " + std::to_string(size));
    }
    overwrite(path, good + '\0');
    expect_named("longer");
    fs::remove(path);
    expect_named("missing");
    fs::create_directory(path);
    expect_named("a folder");
    fs::remove(path);
    overwrite(path, good);
  }
}

TEST(ReadCheckpoint, NamesEveryDamagedFile) {
  TemporaryDirectory out(test::memory_path());
  const Checkpoint saved = save_checkpoint(out.path(), 5);
  overwrite(saved.path / "empty", "x");
  fs::remove(saved.path / kOptimizerFile);
  const std::string message = error_message<FormatError>([&] { read_checkpoint(saved.path); });
  EXPECT_TRUE(contains(message, "empty: has 1 bytes where trainer_manifest.json says 0")) << message;
  EXPECT_TRUE(contains(message, "optimizer.safetensors: is missing")) << message;
}

TEST(LimitCheckpoints, KeepsTheNewestAndTheBest) {
  const auto left = [](int64_t limit, std::optional<int64_t> best) {
    TemporaryDirectory out;
    for (int64_t step : {5, 10, 20, 100}) save_checkpoint(out.path(), step);
    limit_checkpoints(out.path(), limit, {.best_step = best});
    const auto steps = checkpoint_steps(out.path());
    EXPECT_EQ(out.names().size(), steps.size());
    return steps;
  };
  using Steps = std::vector<int64_t>;
  EXPECT_EQ(left(0, {}), (Steps{5, 10, 20, 100}));
  EXPECT_EQ(left(4, {}), (Steps{5, 10, 20, 100}));
  EXPECT_EQ(left(2, {}), (Steps{20, 100}));
  EXPECT_EQ(left(1, {}), (Steps{100}));
  EXPECT_EQ(left(1, 100), (Steps{100}));
  EXPECT_EQ(left(1, 5), (Steps{5, 100}));
  EXPECT_EQ(left(2, 10), (Steps{10, 100}));
  EXPECT_EQ(left(3, 5), (Steps{5, 20, 100}));
  EXPECT_EQ(left(2, 7), (Steps{20, 100}));  // the best is not there any more
}

TEST(LimitCheckpoints, KeepsTheOnlyWholeOne) {
  TemporaryDirectory out;
  for (int64_t step : {5, 10, 20, 30}) save_checkpoint(out.path(), step);
  for (const char* step : {"20", "30"})
    overwrite(out / ("checkpoint-" + std::string(step)) / kOptimizerFile, "damaged");
  limit_checkpoints(out.path(), 2);
  EXPECT_EQ(checkpoint_steps(out.path()), (std::vector<int64_t>{10, 20, 30}));
  EXPECT_EQ(find_newest(out.path()).step(), 10);
}

TEST(LimitCheckpoints, KeepsTheNewestGoodOne) {
  using Steps = std::vector<int64_t>;
  const auto left = [](int64_t limit, const KnownCheckpoints& known, bool keeps_good) {
    TemporaryDirectory out;
    for (int64_t step : {5, 10, 20, 30}) save_checkpoint(out.path(), step);
    EXPECT_EQ(limit_checkpoints(out.path(), limit, known), keeps_good);
    return checkpoint_steps(out.path());
  };
  EXPECT_EQ(left(1, {.good_step = 30}, false), (Steps{30}));
  EXPECT_EQ(left(1, {.good_step = 29}, true), (Steps{20, 30}));
  EXPECT_EQ(left(2, {.good_step = 20}, false), (Steps{20, 30}));
  EXPECT_EQ(left(2, {.good_step = 12}, true), (Steps{10, 20, 30}));
  EXPECT_EQ(left(2, {.best_step = 10, .good_step = 12}, false), (Steps{10, 30}));
  EXPECT_EQ(left(2, {.good_step = 3}, false), (Steps{20, 30}));
}

TEST(LimitCheckpoints, DoesNotReadTheOneThatWasJustCommitted) {
  TemporaryDirectory out;
  for (int64_t step : {5, 10, 20}) save_checkpoint(out.path(), step);
  overwrite(out / "checkpoint-20" / kOptimizerFile, "damaged");
  limit_checkpoints(out.path(), 1, {.whole_step = 10});  // that one does not stay
  EXPECT_EQ(checkpoint_steps(out.path()), (std::vector<int64_t>{10, 20}));
  limit_checkpoints(out.path(), 1, {.whole_step = 20});
  EXPECT_EQ(checkpoint_steps(out.path()), (std::vector<int64_t>{20}));
}

TEST(RemoveCheckpointLitter, RemovesWhatAKilledProcessLeftAndNothingElse) {
  TemporaryDirectory out;
  save_checkpoint(out.path(), 5);
  save_checkpoint(out.path(), 6);
  fs::copy(out / "checkpoint-6", out / "checkpoint-6.replaced.tmp", fs::copy_options::recursive);
  for (const char* name : {"checkpoint-7.tmp", "checkpoint-4.removed.tmp", "notes.tmp", "checkpoint-x.tmp"}) {
    fs::create_directory(out / name);
    overwrite(out / name / "file", "x");
  }
  remove_checkpoint_litter(out.path());
  EXPECT_EQ(out.names(), (Names{"checkpoint-5", "checkpoint-6", "checkpoint-x.tmp", "notes.tmp"}));
}

TEST(RemoveCheckpointLitter, GivesACheckpointThatWasBeingReplacedItsNameBack) {
  TemporaryDirectory out;
  save_checkpoint(out.path(), 5);
  fs::rename(out / "checkpoint-5", out / "checkpoint-5.replaced.tmp");
  remove_checkpoint_litter(out.path());
  EXPECT_EQ(find_newest(out.path()).step(), 5);
}

TEST(LackOfSpace, IsToldWithFigures) {
  TemporaryDirectory out;
  EXPECT_EQ(lack_of_space(out.path(), 1), "");
  const std::string message = lack_of_space(out.path(), INT64_MAX);
  EXPECT_TRUE(contains(message, out.path().string())) << message;
  EXPECT_TRUE(contains(message, "needs 9223372.0 TB")) << message;
}

}  // namespace
}  // namespace trainer
