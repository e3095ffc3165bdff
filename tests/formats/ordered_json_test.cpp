// The parser that keeps the order of keys gives what nlohmann's own parser gives, and is linear.
#include <iterator>

#include <gtest/gtest.h>

#include "trainer/base/strings.h"

#include "formats/json_file.h"

namespace trainer {
namespace {

using Json = nlohmann::ordered_json;

TEST(OrderedJson, IsWhatNlohmannReads) {
  for (const char* text :
       {"null", "true", "-3", "18446744073709551615", "1e3", "\"a\\u00e9\\n\"", "[]", "{}",
        " [1, [], {\"a\": [2]}] ", "{\"b\": 1, \"a\": {\"z\": null, \"y\": [false, {}]}, \"c\": \"\"}",
        "{\"b\": 1, \"a\": 2, \"b\": [3]}"}) {
    const Json parsed = parse_ordered_json(text), expected = Json::parse(text);
    EXPECT_EQ(parsed.dump(), expected.dump());
    EXPECT_EQ(parsed.type(), expected.type()) << text;
  }
}

TEST(OrderedJson, FailsWhereNlohmannFails) {
  for (const char* text : {"", "{", "[1,]", "{\"a\" 1}", "{\"a\": 1} 2", "\"\xff\"", "[1, 2"}) {
    size_t byte = 0;
    try {
      ADD_FAILURE() << "nlohmann accepts " << Json::parse(text);
    } catch (const Json::parse_error& error) {
      byte = error.byte;
    }
    try {
      parse_ordered_json(text);
      FAIL() << text;
    } catch (const Json::parse_error& error) {
      EXPECT_EQ(error.byte, byte) << text;
    }
  }
  EXPECT_THROW(parse_ordered_json("{\"a\": 1e400}"), Json::out_of_range);
}

TEST(OrderedJson, ObjectsWithVeryManyKeysAreReadInLinearTime) {
  constexpr int kKeys = 200'000;
  std::string keys;
  for (int i = kKeys - 1; i >= 0; i--) keys += concat("\"k", i, "\": ", i, ", ");
  const Json object = parse_ordered_json("{" + keys + keys + "\"k7\": 55}");
  ASSERT_EQ(object.size(), static_cast<size_t>(kKeys));
  EXPECT_EQ(object.begin().key(), "k199999");
  EXPECT_EQ(std::next(object.begin(), kKeys - 1 - 7).key(), "k7");
  EXPECT_EQ(object["k7"], 55);
}

}  // namespace
}  // namespace trainer
