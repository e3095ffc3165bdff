#include "run/run_plan.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "data/fixture.h"
#include "memory/offload.h"
#include "support/error_message.h"

namespace trainer {
namespace {

using test::contains;
using test::error_message;

TEST(RunPlan, ProcessesOfOneMachineNeedRoomForAll) {
  RunPlan run;
  run.config.memory.offload_dir = std::filesystem::temp_directory_path();
  run.plan.offloaded.weights = room_below(c10::kCPU, run.config.offload_directory()) / 5 * 2;
  check_room(run, c10::kCPU, 1);
  const std::string message = error_message<OutOfMemoryError>([&] { check_room(run, c10::kCPU, 4); });
  EXPECT_TRUE(contains(message, "for each of the 4 processes of this machine")) << message;
}

TEST(RunPlan, ProcessesOnTheCpuShareWhatIsFree) {
  // Others use this machine, too, so that the figures are not exact.
  EXPECT_LT(memory_for_run(c10::kCPU, 10), memory_for_run(c10::kCPU) / 4);
}

TEST(RunPlan, APeakSaysWhoseItIs) {
  RunPlan run;
  run.plan.weights = 1000;
  EXPECT_TRUE(contains(run.compared(500, 3), "(rank 3)"));
  EXPECT_EQ(run.row(1, 500, 3).values.at("rank"), 3);
  EXPECT_FALSE(run.row(1, 500).values.contains("rank"));
}

using SampleLengthsTest = DataTest;

TEST_F(SampleLengthsTest, HaveADecodersShortestSamplesOnlyForAGpu) {
  config_.data.kind = DataKind::text;
  const std::string rows =
      "{\"text\": \"a b c\"}\n{\"text\": \"a\"}\n{\"text\": \"a b c d e\"}\n{\"text\": \"b\"}\n";
  const Dataset train = data(rows, /*encoder_decoder=*/false);  // each has a first and a last token, too
  const SampleLengths lengths = sample_lengths(train, c10::kCUDA);
  EXPECT_EQ(lengths.source, 7);
  EXPECT_EQ(lengths.shortest, (std::vector<int64_t>{3, 3, 5, 7}));
  EXPECT_TRUE(sample_lengths(train, c10::kCPU).shortest.empty());
}

TEST_F(SampleLengthsTest, CountASampleAsOftenAsItOccursInAnEpoch) {
  config_.data.kind = DataKind::text;
  config_.data.train = {{write("often.jsonl", "{\"text\": \"a\"}\n"), 3},
                        {write("once.jsonl", "{\"text\": \"a b c\"}\n")}};
  const Dataset train = Dataset::open_train(config_, decoder_, /*encoder_decoder=*/false);
  EXPECT_EQ(sample_lengths(train, c10::kCUDA).shortest, (std::vector<int64_t>{3, 3, 3, 5}));
}

}  // namespace
}  // namespace trainer
