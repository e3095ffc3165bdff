
#include <gtest/gtest.h>

#include "base/text.h"

namespace trainer {
namespace {

const std::vector<LinePart> kParts{
    {"step 10/100", 0}, {"loss 1.2345", 0}, {"lr 1e-4", 2}, {"left 3 min 20 s", 1}};

TEST(FittedLine, HasAllPartsWhereThereIsRoom) {
  EXPECT_EQ(fitted_line(kParts, 80), "step 10/100  loss 1.2345  lr 1e-4  left 3 min 20 s");
}

TEST(FittedLine, LeavesOutPartsByRankAndKeepsTheirOrder) {
  EXPECT_EQ(fitted_line(kParts, 42), "step 10/100  loss 1.2345  left 3 min 20 s");
  EXPECT_EQ(fitted_line(kParts, 30), "step 10/100  loss 1.2345");
}

TEST(FittedLine, SplitsNoWordAtAnyWidth) {
  for (size_t width = 6; width < 80; width++) {
    const std::string line = fitted_line(kParts, width);
    EXPECT_LE(line.size(), width);
    for (const std::string& word : wrapped(line, 1))
      EXPECT_NE(std::string(" step 10/100 loss 1.2345 lr 1e-4 left 3 min 20 s ").find(" " + word + " "),
                std::string::npos)
          << line;
  }
}

TEST(FittedLine, CutsAWordThatIsLongerThanTheLine) {
  EXPECT_EQ(fitted_line({{"\u2581\u2582\u2583\u2584", 0}}, 3), "\u2581\u2582\u2583");
}

TEST(WithBar, FillsTheShareAndIsLeftOutFirst) {
  EXPECT_EQ(with_bar(0.5, "half", 18), "[=====>    ]  half");
  EXPECT_EQ(with_bar(0.5, "half", 17), "half");
  EXPECT_EQ(with_bar(1, "all", 17), "[==========]  all");
  EXPECT_EQ(with_bar(7, "more", 18), "[==========]  more");
}

TEST(BrokenAtWords, BreaksBetweenWordsAndIndentsTheRest) {
  EXPECT_EQ(broken_at_words("one two three four", 14, 4, 2), "one two\n  three four");
  EXPECT_EQ(broken_at_words("one two", 0, 4, 2), "one two");
  EXPECT_EQ(broken_at_words("a\nb   c", 20, 4, 2), "a\nb   c") << "a table keeps its columns";
}

TEST(BrokenAtWords, KeepsALongWordWhole) {
  EXPECT_EQ(broken_at_words("see /a/very/long/path now", 12, 2, 2), "see\n  /a/very/long/path\n  now");
}

TEST(Sparkline, RunsFromTheLowestToTheHighestValue) {
  EXPECT_EQ(sparkline({8, 4, 1}, 10, true), "\u2588\u2584\u2581");
  EXPECT_EQ(sparkline({8, 4, 1}, 10, false), "%=.");
  EXPECT_EQ(sparkline({}, 10, true), "");
  EXPECT_EQ(count_characters(sparkline(std::vector<double>(1000, 1.0), 24, true)), 24u);
}

}  // namespace
}  // namespace trainer
