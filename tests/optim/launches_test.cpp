// What norm and update of many parameters start and allocate on a GPU. Nothing is computed here.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "trainer/optim/adamw.h"

#include "device/target_device.h"
#include "memory/meta_memory.h"
#include "optim/gradient_norm.h"
#include "support/started_kernels.h"

namespace trainer {
namespace {

using test::StartedKernels;

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
  StartedKernels kernels;
  const std::vector<AdamwItem> items = items_of_two_types(504);
  const at::Tensor norm = gradient_norm_gpu(gradients_of(items));
  EXPECT_EQ(kernels.take_started(), (Names{"sum_squares", "finish_norm"}));
  AdamwProgress progress;
  adamw_update_gpu(items, norm, progress);
  EXPECT_EQ(kernels.take_started(), (Names{"adamw_update", "adamw_update"}));
}

TEST(Launches, OneThatFailsIsRepeatedAndThoseBeforeItAreNot) {
  StartedKernels kernels;
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
  StartedKernels kernels;
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
