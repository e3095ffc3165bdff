// What norm and update of many parameters start and allocate on a GPU. Nothing is computed here.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/device/kernels.h"
#include "trainer/device/target_device.h"
#include "trainer/memory/meta_memory.h"
#include "trainer/optim/adamw.h"

#include "optim/gradient_norm.h"

namespace trainer {
namespace {

// Stands in for a GPU's kernels: writes down what is started, and may run out of memory.
class WrittenDown : public Kernels {
 public:
  WrittenDown() {
    set_kernels_for_cpu([this](const KernelFile&, const std::string&) { return this; });
  }
  ~WrittenDown() override { set_kernels_for_cpu({}); }

  std::vector<std::string> take_started() { return std::exchange(started_, {}); }
  void fail_next_but(size_t launches) { until_failure_ = launches + 1; }

 protected:
  void launch(const char* function, const KernelGrid&, std::span<const KernelArgument>) const override {
    if (until_failure_ > 0 && --until_failure_ == 0) TORCH_CHECK_WITH(OutOfMemoryError, false, "no memory");
    started_.emplace_back(function);
  }

 private:
  mutable std::vector<std::string> started_;
  mutable size_t until_failure_ = 0;
};

std::vector<AdamwItem> items_of_two_types(size_t count, at::Device device = at::kCPU) {
  std::vector<AdamwItem> items;
  for (size_t i = 0; i < count; i++) {
    const auto options = at::TensorOptions(device).dtype(i % 2 == 0 ? at::kFloat : at::kBFloat16);
    const auto some = [&] { return at::zeros({16, 64}, options); };
    items.push_back({{some(), some(), some(), some(), {}}, {1e-3, 0.9, 0.999, 1e-8, 0.1, 1, i}});
  }
  return items;
}

std::vector<at::Tensor> gradients_of(const std::vector<AdamwItem>& items) {
  std::vector<at::Tensor> gradients;
  for (const AdamwItem& item : items) gradients.push_back(item.tensors.gradient);
  return gradients;
}

using Names = std::vector<std::string>;

TEST(Launches, NormAndUpdateOfManyParametersOfTwoTypesAreFour) {
  WrittenDown kernels;
  const std::vector<AdamwItem> items = items_of_two_types(504);
  const at::Tensor norm = gradient_norm_gpu(gradients_of(items));
  EXPECT_EQ(kernels.take_started(), (Names{"sum_squares", "finish_norm"}));
  AdamwProgress progress;
  adamw_update_gpu(items, norm, progress);
  EXPECT_EQ(kernels.take_started(), (Names{"adamw_update", "adamw_update"}));
}

TEST(Launches, OneThatFailsIsRepeatedAndThoseBeforeItAreNot) {
  WrittenDown kernels;
  const std::vector<AdamwItem> items = items_of_two_types(6);
  AdamwProgress progress;
  kernels.fail_next_but(1);
  EXPECT_THROW(adamw_update_gpu(items, at::ones({}), progress), c10::OutOfMemoryError);
  EXPECT_EQ(kernels.take_started(), Names{"adamw_update"});
  EXPECT_EQ(progress.next, 3U);
  adamw_update_gpu(items, at::ones({}), progress);
  EXPECT_EQ(kernels.take_started(), Names{"adamw_update"});
  EXPECT_EQ(progress.next, 6U);
}

TEST(Launches, ARehearsalStartsNone) {
  WrittenDown kernels;
  AdamwProgress progress{.rehearsal = true};
  adamw_update_gpu(items_of_two_types(6), at::ones({}), progress);
  EXPECT_EQ(kernels.take_started(), Names{});
}

TEST(Launches, APlanCountsWhatIsAllocatedForThem) {
  const PlanningFor planning(c10::kCUDA);
  const std::vector<AdamwItem> items = items_of_two_types(6, at::kMeta);
  const std::vector<at::Tensor> gradients = gradients_of(items);
  const at::Tensor scale = at::ones({}, at::kMeta);
  const MetaRecorder recorder(1);
  gradient_norm_gpu(gradients);
  AdamwProgress progress, rehearsal{.rehearsal = true};
  adamw_update(items, scale, progress);
  adamw_update(items, scale, rehearsal);
  std::vector<int64_t> bytes;
  for (const MetaEvent& event : recorder.events()) {
    if (event.bytes > 0) bytes.push_back(event.bytes);
  }
  // The norm's table, a sum for each block and the result; the table of the update, and of its rehearsal.
  EXPECT_EQ(bytes, (std::vector<int64_t>{6 * 24, 6 * 8, 4, 6 * 88, 6 * 88}));
}

}  // namespace
}  // namespace trainer
