// A pattern in a tokenizer's file may need far too many attempts to match. Then it stops with an error.
#include <gtest/gtest.h>

#include "trainer/base/error.h"

#include "support/error_message.h"
#include "text/tokenizer/regex.h"

namespace trainer {
namespace {

TEST(RegexLimits, APatternThatBacktracksWithoutEndIsNamedWithTheText) {
  const Regex regex("(a|aa)+$", "tokenizer.json");
  const std::string text = std::string(6000, 'a') + "b";
  std::vector<Span> matches;
  const std::string message = test::error_message<DataError>([&] { regex.find_all(text, matches); });
  for (const char* part : {"'(a|aa)+$'", "6001 bytes", "'aaaaaaaa", "too many steps"})
    EXPECT_TRUE(test::contains(message, part)) << message;
}

TEST(RegexLimits, LongTextsStayFarBelowTheLimit) {
  const Regex regex("\\s+(?!\\S)|\\S+", "tokenizer.json");
  std::vector<Span> matches;
  regex.find_all(std::string(2'000'000, ' ') + std::string(2'000'000, 'a'), matches);
  EXPECT_EQ(matches.size(), size_t{2});
}

}  // namespace
}  // namespace trainer
