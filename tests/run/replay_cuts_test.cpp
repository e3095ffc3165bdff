#include <fstream>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "run/saved_splits.h"
#include "support/error_message.h"
#include "support/temporary_directory.h"

namespace trainer {
namespace {

std::filesystem::path write(const test::TemporaryDirectory& folder, const std::string& text) {
  const std::filesystem::path path = folder / "metrics.jsonl";
  std::ofstream(path) << text;
  return path;
}

TEST(ReplayCuts, AreThoseOfTheStepsAndTheLastOfAStepCounts) {
  const test::TemporaryDirectory folder;
  const auto steps = read_step_cuts(
      write(folder, R"({"kind":"train","step":1,"micro_batch_sizes":[4,2],"recomputed_blocks":0}
{"kind":"eval","step":1}
{"kind":"train","step":2,"micro_batch_sizes":[6],"recomputed_blocks":0}
{"kind":"train","step":2,"micro_batch_sizes":[3,3],"recomputed_blocks":7,"micro_batch_tokens":512,"micro_batch_target_tokens":64}
)"));
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps.at(1).samples, (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(steps.at(2).samples, (std::vector<int64_t>{3, 3}));
  EXPECT_EQ(steps.at(2).recomputed_blocks, 7);
  EXPECT_EQ(steps.at(1).packed_budget.tokens, 0);
  EXPECT_EQ(steps.at(2).packed_budget.tokens, 512);
  EXPECT_EQ(steps.at(2).packed_budget.target_tokens, 64);
}

TEST(ReplayCuts, OfAnOlderRunHaveTheNamesOfThatTime) {
  const test::TemporaryDirectory folder;
  const auto steps = read_step_cuts(write(
      folder,
      R"({"kind":"train","step":1,"cuts":[3,2],"recomputed_blocks":1,"packed_budget":512,"packed_target_budget":64})"));
  EXPECT_EQ(steps.at(1).samples, (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(steps.at(1).packed_budget.tokens, 512);
  EXPECT_EQ(steps.at(1).packed_budget.target_tokens, 64);
}

TEST(ReplayCuts, OfAnotherFileAreAnErrorWithItsPlace) {
  const test::TemporaryDirectory folder;
  for (const char* text : {"{\"kind\":\"train\",\"step\":1}\n", "no json\n", "", "{\"kind\":\"eval\"}\n"}) {
    const std::string message = test::error_message<DataError>([&] { read_step_cuts(write(folder, text)); });
    EXPECT_TRUE(test::contains(message, "metrics.jsonl")) << text;
  }
  EXPECT_THROW(read_step_cuts(folder / "none"), DataError);
}

}  // namespace
}  // namespace trainer
