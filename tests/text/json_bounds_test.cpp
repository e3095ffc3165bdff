#include <string>

#include <gtest/gtest.h>

#include "text/tokenizer/json_reader.h"

namespace trainer {
namespace {

std::string found(const std::string& json) {
  return std::string(integer_beyond_64_bits(json).value_or("none"));
}

TEST(IntegerBeyond64Bits, IsFoundWhereverItStands) {
  EXPECT_EQ(found("18446744073709551616"), "18446744073709551616");
  EXPECT_EQ(found(R"({"a": [1, {"b":-9223372036854775809}]})"), "-9223372036854775809");
  EXPECT_EQ(found(R"({"a\"": "\\", "b": 99999999999999999999})"), "99999999999999999999");
}

TEST(IntegerBeyond64Bits, NumbersThatFitAndOtherNumbersAreNotFound) {
  EXPECT_EQ(found("[18446744073709551615, -9223372036854775808, 0, -1, 7]"), "none");
  EXPECT_EQ(found("[99999999999999999999.0, 99999999999999999999e0, 1E400, true, false]"), "none");
  EXPECT_EQ(found(R"({"a": "99999999999999999999", "99999999999999999999": "\"99999999999999999999"})"),
            "none");
  EXPECT_EQ(found(""), "none");
  EXPECT_EQ(found("\"not closed 99999999999999999999\\"), "none");
}

TEST(NumberBeyond64Bits, IsFoundFromAGivenByteOn) {
  const std::string json = R"([1e400, "1e400", -1e400, 1e-400, 01e400])";
  EXPECT_EQ(number_beyond_64_bits(json), "1e400");
  EXPECT_EQ(number_beyond_64_bits(json, 6), "-1e400");
  EXPECT_EQ(number_beyond_64_bits(json, 23), std::nullopt);
}

TEST(NestedTooDeep, CountsBracketsOutsideOfStrings) {
  const std::string open(1000, '['), close(1000, ']');
  EXPECT_FALSE(nested_too_deep(open + close));
  EXPECT_FALSE(nested_too_deep(open + "\"\\\"[{\"" + close + open));
  EXPECT_TRUE(nested_too_deep(open + "{}" + close));
  EXPECT_TRUE(nested_too_deep(std::string(1'000'000, '[')));
}

}  // namespace
}  // namespace trainer
