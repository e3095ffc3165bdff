#include "base/utf8.h"

#include <gtest/gtest.h>

namespace trainer {
namespace {

// Expected values: Python's bytes.decode("utf-8", errors="replace").
TEST(RepairUtf8, EachMaximalPartBecomesOneReplacement) {
  EXPECT_EQ(repair_utf8("abc"), "abc");
  EXPECT_EQ(repair_utf8("a\xc3\xa9z"), "a\u00e9z");
  EXPECT_EQ(repair_utf8("a\xffz"), "a\ufffdz");
  EXPECT_EQ(repair_utf8("a\xf0\x9f\x98z"), "a\ufffdz");
  EXPECT_EQ(repair_utf8("a\xf0\x9f\x98"), "a\ufffd");
  EXPECT_EQ(repair_utf8("\xed\xa0\x80"), "\ufffd\ufffd\ufffd");
  EXPECT_EQ(repair_utf8("\xc0\xaf"), "\ufffd\ufffd");
  EXPECT_EQ(repair_utf8("\xf4\x90\x80\x80"), "\ufffd\ufffd\ufffd\ufffd");
  EXPECT_EQ(repair_utf8("\xe2\x82\xe2\x82\xac"), "\ufffd\u20ac");
}

TEST(Utf8, CodePointsSurviveARoundTrip) {
  for (char32_t c : {U'a', U'\u00e9', U'\u20ac', U'\U0001f600', U'\U0010ffff', U'\0'}) {
    std::string text;
    append_code_point(text, c);
    size_t at = 0;
    EXPECT_EQ(next_code_point(text, at), c);
    EXPECT_EQ(at, text.size());
    EXPECT_EQ(valid_utf8_prefix(text), text.size());
  }
}

}  // namespace
}  // namespace trainer
