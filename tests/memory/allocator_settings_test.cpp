// LibTorch understands what the configuration says about the GPU allocator.
#include <c10/core/AllocatorConfig.h>
#include <gtest/gtest.h>

#include "config/cards.h"

namespace trainer {
namespace {

using Settings = c10::CachingAllocator::AcceleratorAllocatorConfig;

TEST(AllocatorSettings, LibTorchReadsThem) {
  MemoryConfig config;
  config.max_split_size_mb = 128;
  config.roundup_power2_divisions = 8;
  config.garbage_collection_threshold = 0.8;
  Settings::instance().parseArgs(allocator_settings(config));
  EXPECT_TRUE(Settings::use_expandable_segments());
  EXPECT_EQ(Settings::max_split_size(), size_t{128} << 20);
  EXPECT_EQ(Settings::roundup_power2_divisions(size_t{3} << 20), 8U);
  EXPECT_DOUBLE_EQ(Settings::garbage_collection_threshold(), 0.8);
}

TEST(AllocatorSettings, TheSmallestSplitSizeAllowedIsOneThatLibTorchTakes) {
  MemoryConfig config;
  config.max_split_size_mb = 20;
  Settings::instance().parseArgs(allocator_settings(config));
  EXPECT_EQ(Settings::max_split_size(), size_t{20} << 20);
}

TEST(AllocatorSettings, WhatIsOffIsLeftOut) {
  MemoryConfig config;
  EXPECT_EQ(allocator_settings(config), "expandable_segments:True");
  config.expandable_segments = false;
  EXPECT_EQ(allocator_settings(config), "");
}

}  // namespace
}  // namespace trainer
