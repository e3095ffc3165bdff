// What the log shows of answers.
#include <gtest/gtest.h>

#include "trainer/base/strings.h"
#include "trainer/training/predictions.h"

namespace trainer {
namespace {

std::string shown_input(const std::string& input) {
  Predictions predictions;
  predictions.rows.push_back({"a.jsonl:1", input, "t", "p"});
  return predictions.lines(1).at(0).substr(std::string("  input       ").size());
}

TEST(PredictionLines, AShortInputIsWhole) {
  EXPECT_EQ(shown_input("one\ntwo é"), "one\\ntwo é");
  const std::string full(150, 'x');
  EXPECT_EQ(shown_input(full), full);
}

TEST(PredictionLines, OfALongInputTheBeginningAndTheQuestionAtTheEndAreShown) {
  const std::string system = "You are a helpful assistant. ", question = "Why is the sky blüe?";
  std::string input = system;
  for (int i = 0; i < 50; i++) input += "é and more ";
  const std::string shown = shown_input(input + question);
  EXPECT_TRUE(shown.starts_with(system)) << shown;
  EXPECT_TRUE(shown.ends_with(question)) << shown;
  EXPECT_NE(shown.find("… "), std::string::npos);
}

}  // namespace
}  // namespace trainer
