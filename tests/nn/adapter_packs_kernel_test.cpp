// The packed adapters of an update (src/nn/adapter_packs.h), on an emulated GPU.
#include <cstdint>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nn/adapter_packs.h"
#include "nn/gpu_of_adapters.h"
#include "support/reference.h"

namespace trainer {
namespace {

std::vector<AdapterGroup> some_groups(Random& random) {
  std::vector<AdapterGroup> groups;
  for (const std::vector<int64_t>& ranks : {std::vector<int64_t>{8, 4, 8}, {5}, {3, 16}}) {
    AdapterGroup& group = groups.emplace_back();
    const int64_t inputs = ranks.size() == 2 ? 33 : 64;
    for (const int64_t rank : ranks) {
      group.a.push_back(random.normal({rank, inputs}));
      group.b.push_back(random.normal({10 * rank, rank}));
    }
  }
  return groups;
}

TEST(AdapterPacks, ManyGroupsArePackedInOneLaunchAsEachAlone) {
  Random random(7);
  const std::vector<AdapterGroup> groups = some_groups(random);
  GpuOfAdapters gpu;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    std::vector<PackedAdapters> alone;
    for (const AdapterGroup& group : groups) alone.push_back(pack_adapters(group.a, group.b, type));
    gpu.take_used();
    const std::vector<PackedAdapters> all = pack_adapter_groups(groups, type);
    EXPECT_EQ(gpu.take_used().size(), 1u);
    ASSERT_EQ(all.size(), groups.size());
    for (size_t i = 0; i < all.size(); i++) {
      EXPECT_TRUE(all[i].a.equal(alone[i].a)) << i;
      EXPECT_TRUE(all[i].b.equal(alone[i].b)) << i;
      EXPECT_EQ(all[i].first_rank, alone[i].first_rank);
    }
  }
}

// Groups that are small beside their input: once in an update, whatever its micro-batches. Others: whenever
// they are used.
TEST(AdapterPacks, PackOnceAnUpdate) {
  Random random(8);
  const std::vector<AdapterGroup> groups = some_groups(random);
  const at::Tensor many = at::zeros({4000, 64}), few = at::zeros({4, 64}), narrow = at::zeros({4000, 33});
  GpuOfAdapters gpu;
  AdapterPacks packs;
  const auto pass = [&](const at::Tensor& x) {
    gpu.take_used();
    for (const AdapterGroup& group : groups) {
      const PackedAdapters packed = packs.get(group, group.a[0].size(1) == 33 ? narrow : x);
      EXPECT_TRUE(packed.a_of(0).equal(group.a[0]));
      EXPECT_TRUE(packed.b_of(0).equal(group.b[0]));
    }
    return gpu.take_used().size();
  };
  EXPECT_EQ(pass(few), 3u);
  EXPECT_EQ(pass(many), 2u) << "the narrow one was kept";
  EXPECT_EQ(pass(few), 0u) << "all are kept by now";
  packs.end();
  for (const AdapterGroup& group : groups) group.a[0].add_(1);
  packs.begin();
  EXPECT_EQ(gpu.take_used().size(), 1u);
  EXPECT_EQ(pass(many), 0u);
  packs.forget();
  EXPECT_EQ(pass(many), 3u);
}

}  // namespace
}  // namespace trainer
