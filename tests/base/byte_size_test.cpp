#include <gtest/gtest.h>

#include "base/text.h"

namespace trainer {
namespace {

TEST(ByteSize, UnitsArePowersOf1000OrOf1024) {
  EXPECT_EQ(parse_byte_size("5GB"), 5'000'000'000);
  EXPECT_EQ(parse_byte_size("1.5 GiB"), int64_t{3} << 29);
  EXPECT_EQ(parse_byte_size("300kB"), 300'000);
  EXPECT_EQ(parse_byte_size("300KB"), 300'000);
  EXPECT_EQ(parse_byte_size("0MB"), 0);
}

TEST(ByteSize, AnythingElseIsNone) {
  for (const char* text : {"", "5", "GB", "5gb", "-5GB", "5GB!", "5 G B", "1e3GB", "99999999999TB"})
    EXPECT_EQ(parse_byte_size(text), std::nullopt) << text;
}

}  // namespace
}  // namespace trainer
