// Numbers beyond 64 bits.
#include "data/fixture.h"
#include "data/row_parser.h"

namespace trainer {
namespace {

TEST(BigNumbers, BecomeObjectsAndEverythingElseStays) {
  for (const char* json :
       {R"({"a": 9223372036854775807, "b": -9223372036854775808, "c": 18446744073709551615})",
        R"(["\\\"99999999999999999999", "1e999", 1e308, 1e-999, -0.5E+3, 0])", "[01, 1., 1e, -, 1e+, 12a]",
        "\"open", "\"\\"})
    EXPECT_EQ(with_big_numbers_as_objects(json), json);
  EXPECT_EQ(with_big_numbers_as_objects(R"({"a": 18446744073709551616, "b":[-1e400,-9223372036854775809]})"),
            R"({"a": {"\u0001number":"18446744073709551616"}, "b":[{"\u0001number":"-1e400"},)"
            R"({"\u0001number":"-9223372036854775809"}]})");
}

class BigNumberRows : public DataTest {};

TEST_F(BigNumberRows, AreAcceptedInFieldsThatAreNotRead) {
  const char* row =
      R"({"id": 340282366920938463463374607431768211455, "x": 1e400, "input": "one", "target": "two"})";
  EXPECT_EQ(data(row).texts(0).input, "one");
  EXPECT_TRUE(has(error(R"({"input": 18446744073709551616, "target": "two"})"),
                  "data.jsonl:1: field \"input\" is a number, not text"));
  EXPECT_TRUE(has(error(R"({"input": "a", "target": "b", "n": 01})"), "malformed JSON"));
}

}  // namespace
}  // namespace trainer
