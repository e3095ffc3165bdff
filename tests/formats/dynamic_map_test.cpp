#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "trainer/formats/safetensors.h"

#include "formats/bitsandbytes.h"

namespace trainer {
namespace {

// tests/make_goldens/nf4
TEST(DynamicMap, HasTheBitsOfBitsandbytes) {
  const SafetensorsFile goldens =
      read_safetensors(std::filesystem::path(SOURCE_DIR) / "tests/goldens/nf4/cases.safetensors");
  for (const bool with_sign : {false, true}) {
    const TensorView& expected = goldens.tensors.at(with_sign ? "map.signed" : "map.unsigned");
    const DynamicMap map = dynamic_map(with_sign);
    ASSERT_EQ(expected.nbytes, sizeof map);
    EXPECT_EQ(std::memcmp(map.data(), expected.data, sizeof map), 0) << with_sign;
  }
}

TEST(DynamicMap, IsInOrderAndHasZeroAndOne) {
  for (const bool with_sign : {false, true}) {
    const DynamicMap map = dynamic_map(with_sign);
    EXPECT_TRUE(std::ranges::is_sorted(map));
    EXPECT_TRUE(std::ranges::binary_search(map, 0.0f));
    EXPECT_EQ(map.back(), 1.0f);
    EXPECT_EQ(map.front() < 0, with_sign);
  }
}

}  // namespace
}  // namespace trainer
