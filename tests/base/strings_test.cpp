#include "trainer/base/strings.h"

#include <limits>

#include <gtest/gtest.h>

#include "base/text.h"

namespace trainer {
namespace {

TEST(Strings, ConcatAndJoin) {
  EXPECT_EQ(concat("a", 1, ':', 2.5), "a1:2.5");
  EXPECT_EQ(join({}), "");
  EXPECT_EQ(join({"a"}), "a");
  EXPECT_EQ(join({"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(join({"a", "b"}, "; "), "a; b");
}

TEST(Strings, OneLineShowsWhatATerminalWouldObey) {
  EXPECT_EQ(one_line("", 3), "");
  EXPECT_EQ(one_line("a\nb\t\r", 10), "a\\nb\\t\\r");
  EXPECT_EQ(one_line("\x1b[31mred\x7f \xc2\x9b", 20), "\\x1b[31mred\\x7f \\x9b");
  EXPECT_EQ(one_line("naïve 日本 👍", 10), "naïve 日本 👍");
  EXPECT_EQ(one_line("\xf4"
                     "ab\x1b[\xe6\x97",
                     20),
            "\\xf4ab\\x1b[\\xe6\\x97");  // no UTF-8, and what follows
  EXPECT_EQ(one_line("naïve 日本 👍", 9), "naïve 日本 …");
}

TEST(Strings, Shapes) {
  EXPECT_EQ(shape_string({}), "[]");
  EXPECT_EQ(shape_string({32, 128}), "[32, 128]");
}

TEST(Strings, BytesInPowersOf1000) {
  EXPECT_EQ(bytes_string(0), "0 B");
  EXPECT_EQ(bytes_string(999), "999 B");
  EXPECT_EQ(bytes_string(1250), "1.25 kB");
  EXPECT_EQ(bytes_string(25'000'000), "25.0 MB");
  EXPECT_EQ(bytes_string(1'250'000'000), "1.25 GB");
  EXPECT_EQ(bytes_string(5'700'000'000'000), "5.70 TB");
  EXPECT_EQ(bytes_string(999'999'999), "1.00 GB");
  EXPECT_EQ(bytes_string(9'999'999), "10.0 MB");
}

TEST(Strings, NumbersInGroups) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(2'850'000'000), "2,850,000,000");
  EXPECT_EQ(grouped(-1234567), "-1,234,567");
  EXPECT_EQ(grouped(std::numeric_limits<int64_t>::max()), "9,223,372,036,854,775,807");
  EXPECT_EQ(grouped(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(Strings, Durations) {
  EXPECT_EQ(duration_string(-1), "0 s");
  EXPECT_EQ(duration_string(12.4), "12 s");
  EXPECT_EQ(duration_string(59.6), "1 min 00 s");
  EXPECT_EQ(duration_string(200), "3 min 20 s");
  EXPECT_EQ(duration_string(3900), "1 h 05 min");
  EXPECT_EQ(duration_string(100 * 3600), "100 h 00 min");
}

TEST(Closest, FindsWhatWasMeant) {
  const std::vector<std::string> known{"learning_rate", "weight_decay", "warmup_steps", "r",
                                       "eval_steps",    "save_steps"};
  EXPECT_EQ(closest("learning_rat", known), "learning_rate");
  EXPECT_EQ(closest("learnign_rate", known), "learning_rate");
  EXPECT_EQ(closest("wieght_decay", known), "weight_decay");
  EXPECT_EQ(closest("warmup_step", known), "warmup_steps");
}

TEST(Closest, SaysNothingWhenNothingIsNear) {
  EXPECT_EQ(closest("completely_different", {"r", "seed", "device"}), "");
  EXPECT_EQ(closest("x", {"r"}), "");
  EXPECT_EQ(closest("anything", {}), "");
}

TEST(Strings, ALongListIsCutAndSaysHowMuchMoreThereIs) {
  EXPECT_EQ(join_some({}, 3), "");
  EXPECT_EQ(join_some({"a", "b", "c"}, 3), "a, b, c");
  EXPECT_EQ(join_some({"a", "b", "c", "d"}, 3), "a, b, c and 1 more");
  EXPECT_EQ(join_some(std::vector<std::string>(1'000'000, "x"), 1), "x and 999,999 more");
  EXPECT_EQ(join_some({"a", "b", "c"}, 1, "\n  "), "a\n  and 2 more");
}

}  // namespace
}  // namespace trainer
