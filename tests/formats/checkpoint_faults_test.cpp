// Every file operation of a save fails once, or is the last before a kill; earlier checkpoints stay intact.
#include <sys/mount.h>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "formats/checkpoint_fixture.h"
#include "support/each_file_fault.h"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using test::find_newest;
using test::save_checkpoint;
using test::TemporaryDirectory;

using Names = std::set<std::string>;
using Steps = std::vector<int64_t>;

// A save as a run makes it, with two checkpoints to be left.
void save(const fs::path& out, int64_t step) {
  save_checkpoint(out, step);
  limit_checkpoints(out, 2);
}

// With checkpoints 1 and 2. `step` 3: a new one is saved and 1 is removed; 2: the newest is replaced.
class EachOperation : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    for (int64_t step : {1, 2}) save_checkpoint(start_.path(), step);
    log::set_level(log::Level::error);  // of what cannot be removed
  }
  void TearDown() override { log::set_level(log::Level::info); }

  void start_again() {
    for (const std::string& name : out_.names()) fs::remove_all(out_ / name);
    fs::copy(start_.path(), out_.path(), fs::copy_options::recursive);
  }

  int64_t operations() {
    start_again();
    return test::operations_of([&] { save(out_.path(), GetParam()); });
  }

  // What must hold however a save ended: nothing damaged has a checkpoint's name, nothing is lost.
  void expect_usable(const std::string& what) {
    const auto found = find_newest(out_.path());
    EXPECT_TRUE(found.step() == 2 || found.step() == GetParam()) << what << ": " << found.step();
    EXPECT_TRUE(found.skipped.empty()) << what << ": " << found.skipped[0];
    for (int64_t step : checkpoint_steps(out_.path()))
      EXPECT_NO_THROW(read_checkpoint(checkpoint_path(out_.path(), step))) << what;
  }

  // The next save works, and leaves no trace of what happened.
  void expect_next_save(const std::string& what) {
    EXPECT_NO_THROW(save(out_.path(), 4)) << what;
    EXPECT_EQ(find_newest(out_.path()).step(), 4) << what;
    EXPECT_EQ(out_.names().size(), 2u) << what;
  }

  TemporaryDirectory start_{test::memory_path()}, out_{test::memory_path()};
};

TEST_P(EachOperation, FailsOnceAndNothingIsLost) {
  const int64_t count = operations();
  ASSERT_GT(count, 40);
  for (int64_t n = 1; n <= count; n++) {
    for (const FileFault& fault : test::failures_at(n)) {
      const std::string what = test::name_of(fault);
      start_again();
      bool failed = false;
      {
        const test::FileFaultScope scope(fault);
        try {
          save(out_.path(), GetParam());
        } catch (const FormatError&) {
          failed = true;
        }
      }
      EXPECT_TRUE(failed || find_newest(out_.path()).step() == GetParam()) << what;
      if (fault.lasting) {
        remove_checkpoint_litter(
            out_.path());  // as the next start does: here nothing could be removed before
      }
      expect_usable(what);
      for (const std::string& name : out_.names())
        EXPECT_TRUE(!name.ends_with(".tmp") || name.ends_with(".removed.tmp")) << what << ": " << name;
      remove_checkpoint_litter(out_.path());
      expect_next_save(what);
      if (HasFailure()) return;
    }
  }
}

TEST_P(EachOperation, IsTheLastOfAProcessAndNothingIsLost) {
  const int64_t count = operations();
  for (int64_t n = 1; n <= count; n++) {
    for (const FaultKind kind : {FaultKind::crash, FaultKind::power}) {
      const std::string what = test::name_of({n, kind});
      start_again();
      EXPECT_TRUE(test::ends_by({n, kind}, [&] { save(out_.path(), GetParam()); })) << what;
      remove_checkpoint_litter(out_.path());
      expect_usable(what);
      for (const std::string& name : out_.names())
        EXPECT_FALSE(name.ends_with(".tmp")) << what << ": " << name;
      expect_next_save(what);
      if (HasFailure()) return;
    }
  }
}

TEST_P(EachOperation, IsTheLastOfTheProcessThatCleansUpAfterAnother) {
  const int64_t saving = operations();
  for (int64_t n = 1; n <= saving; n++) {
    for (int64_t m = 1; m <= 12; m++) {
      start_again();
      test::ends_by({n, FaultKind::crash}, [&] { save(out_.path(), GetParam()); });
      const bool ended = test::ends_by({m, FaultKind::crash}, [&] { remove_checkpoint_litter(out_.path()); });
      remove_checkpoint_litter(out_.path());
      expect_usable("saving " + std::to_string(n) + ", cleaning " + std::to_string(m));
      if (!ended || HasFailure()) break;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Save, EachOperation, ::testing::Values(3, 2), [](const auto& info) {
  return info.param == 3 ? "a_new_one" : "one_of_the_same_step";
});

// A file system of its own, of 1 MB.
TEST(FullFileSystem, TheCheckpointBeforeStaysAndSpaceMakesTheNextSaveWork) {
  TemporaryDirectory out;
  if (::mount("tmpfs", out.path().c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "mounting is not permitted here";
  save_checkpoint(out.path(), 1);
  test::overwrite(out / "ballast", std::string(2'000'000, 'x'));  // as much as there is room for
  EXPECT_NE(lack_of_space(out.path(), 100'000), "");
  std::string message;
  try {
    save_checkpoint(out.path(), 2);
  } catch (const FormatError& e) {
    message = e.what();
  }
  const auto found = find_newest(out.path());
  const Names names = out.names();
  fs::remove(out / "ballast");
  save_checkpoint(out.path(), 3);
  const auto later = find_newest(out.path());
  ::umount2(out.path().c_str(), MNT_DETACH);
  EXPECT_NE(message.find("No space left on device"), std::string::npos) << message;
  EXPECT_EQ(found.step(), 1);
  EXPECT_TRUE(found.skipped.empty());
  EXPECT_EQ(names, (Names{"ballast", "checkpoint-1"}));
  EXPECT_EQ(later.step(), 3);
}

}  // namespace
}  // namespace trainer
