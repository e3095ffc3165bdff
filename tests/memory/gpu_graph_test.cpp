// Recorded work on a GPU; skipped without one.
#include "memory/gpu_graph.h"

#include "support/gpu.h"

namespace trainer {
namespace {

class GraphOnAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string why = test::why_no_gpu(kernel_file("rms_norm"), "Element=float kWidth=1");
    if (!why.empty()) GTEST_SKIP() << why;
    count_ = at::zeros({64}, device_);
    weight_ = at::eye(64, device_);
  }
  // Returns 2 in the first step, 4 in the second, ...
  std::vector<at::Tensor> step() {
    count_.add_(1);
    return {count_.unsqueeze(0).matmul(weight_) * 2};
  }

  c10::Device device_{c10::kCUDA, 0};
  at::Tensor count_, weight_;
};

TEST_F(GraphOnAGpu, StartsWhatWasRecordedAndKeepsItsMemoryFromOthers) {
  const RecordedWork recorded = record_work(device_, [&] { return step(); });
  ASSERT_EQ(recorded.problem, "");
  EXPECT_TRUE(recorded.now[0].eq(2).all().item<bool>());
  for (int step = 2; step < 6; step++) {
    const at::Tensor other = at::full({1 << 16}, NAN, device_);
    recorded.graph->start();
    EXPECT_TRUE(recorded.later[0].eq(2 * step).all().item<bool>()) << step;
  }
}

// Their temporary tensors lie in the same memory; results that exist do not.
TEST_F(GraphOnAGpu, OnesThatShareAPoolKeepTheirResultsApart) {
  const c10::MempoolId_t pool = new_graph_pool();
  const auto times = [&](double factor) { return std::vector{(count_ * factor + 1).matmul(weight_) - 1}; };
  const RecordedWork two = record_work(
                         device_, [&] { return times(2); }, pool),
                     three = record_work(
                         device_, [&] { return times(3); }, pool);
  ASSERT_EQ(two.problem + three.problem, "");
  for (int count = 1; count < 4; count++) {
    count_.fill_(count);
    two.graph->start();
    three.graph->start();
    EXPECT_TRUE(two.later[0].eq(2 * count).all().item<bool>());
    EXPECT_TRUE(three.later[0].eq(3 * count).all().item<bool>());
  }
}

TEST_F(GraphOnAGpu, WorkThatReadsFromTheDeviceRunsWithoutAGraph) {
  const RecordedWork recorded = record_work(device_, [&] {
    const std::vector<at::Tensor> out = step();
    EXPECT_GT(out[0].sum().item<double>(), 0);  // cannot be recorded
    return out;
  });
  EXPECT_EQ(recorded.graph, nullptr);
  EXPECT_NE(recorded.problem, "");
  EXPECT_TRUE(recorded.now[0].eq(2).all().item<bool>());
  const RecordedWork next = record_work(device_, [&] { return step(); });
  EXPECT_EQ(next.problem, "");
  EXPECT_TRUE(next.now[0].eq(4).all().item<bool>());
}

}  // namespace
}  // namespace trainer
