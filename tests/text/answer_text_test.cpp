// How generated tokens become text: stop strings, special tokens, streaming.
#include "trainer/text/answer_text.h"

#include <gtest/gtest.h>

namespace trainer {
namespace {

class AnswerTextTest : public ::testing::Test {
 protected:
  std::vector<int32_t> ids(const std::string& text) const { return tokenizer_->encode(text, false); }

  std::unique_ptr<Tokenizer> tokenizer_ =
      load_tokenizer(std::filesystem::path(SOURCE_DIR) / "tests/goldens/text/qwen");
};

TEST_F(AnswerTextTest, EndsBeforeTheFirstStopStringAlsoInsideATokenOrAcrossTokens) {
  const std::string answer = "The answer is here. And more.\n\nNext";
  for (const char* stop : {"answer", "wer is h", "re.", " And", "\n\n", "T"}) {
    const AnswerText text(*tokenizer_, {"not there", stop});
    EXPECT_EQ(text.text(ids(answer)), answer.substr(0, answer.find(stop))) << stop;
  }
  EXPECT_EQ(AnswerText(*tokenizer_, {" And", "is"}).text(ids(answer)), "The answer ");
}

TEST_F(AnswerTextTest, SeesAStopStringWithTheTokenThatCompletesIt) {
  const std::vector<int32_t> all = ids("The answer is here. And more.");
  const AnswerText text(*tokenizer_, {"wer is h"});
  for (size_t count = 1; count <= all.size(); count++) {
    const std::span<const int32_t> first(all.data(), count);
    const bool complete = tokenizer_->decode(first, false).find("wer is h") != std::string::npos;
    if (complete) {
      EXPECT_TRUE(text.stops_at(first));
      break;
    }
    EXPECT_FALSE(text.stops_at(first)) << count;
  }
}

TEST_F(AnswerTextTest, LeavesSpecialTokensOutButStopsAtThem) {
  const std::string answer = "One<|im_start|> two<|im_end|> three";
  EXPECT_EQ(AnswerText(*tokenizer_, {}).text(ids(answer)), "One two three");
  EXPECT_EQ(AnswerText(*tokenizer_, {"<|im_end|>"}).text(ids(answer)), "One two");
  EXPECT_EQ(AnswerText(*tokenizer_, {" three"}).text(ids(answer)), "One two");
}

TEST_F(AnswerTextTest, AStopStringThatWouldEndInsideASpecialTokenIsNone) {
  const std::string answer = "The<|im_end|> weekend ends";
  EXPECT_EQ(AnswerText(*tokenizer_, {"end"}).text(ids(answer)), "The week");
  EXPECT_EQ(AnswerText(*tokenizer_, {"<|"}).text(ids(answer)), "The weekend ends");
  EXPECT_EQ(AnswerText(*tokenizer_, {"e<|im_"}).text(ids(answer)), "The weekend ends");
  EXPECT_EQ(AnswerText(*tokenizer_, {"e<|im_end|>"}).text(ids(answer)), "Th");
  EXPECT_EQ(AnswerText(*tokenizer_, {"|> week"}).text(ids(answer)), "The");
  const std::vector<int32_t> ended = ids("The<|im_end|>");
  for (const char* stop : {"end", "im", "<"}) EXPECT_FALSE(AnswerText(*tokenizer_, {stop}).stops_at(ended));
  EXPECT_TRUE(AnswerText(*tokenizer_, {"The<|im_end|>"}).stops_at(ended));
}

TEST_F(AnswerTextTest, AnEndTokenThatIsNoSpecialTokenIsLeftOutToo) {
  tokenizer_->add_tokens({"<done>"});
  const int32_t done = *tokenizer_->token_to_id("<done>");
  EXPECT_EQ(AnswerText(*tokenizer_, {}, {done}).text(ids("One<done> two<done>")), "One<done> two");
  EXPECT_EQ(AnswerText(*tokenizer_, {}).text(ids("One<done>")), "One<done>");
}

TEST_F(AnswerTextTest, TheEndTokenIsLeftOutAlsoAmongSpecialTokensThatAreKept) {
  const std::vector<int32_t> answer = ids("One<|im_end|> two<|im_end|>");
  EXPECT_EQ(AnswerText(*tokenizer_, {}, {answer.back()}).text(answer, false), "One<|im_end|> two");
}

TEST_F(AnswerTextTest, SkipsIdsThatAreNotTokens) {
  std::vector<int32_t> padded = ids("One two");
  padded.insert(padded.begin() + 1, static_cast<int32_t>(tokenizer_->vocab_size()) + 5);
  EXPECT_EQ(AnswerText(*tokenizer_, {}).text(padded), "One two");
}

TEST_F(AnswerTextTest, ShowsNothingThatMayStillChange) {
  const AnswerText text(*tokenizer_, {"STOP", "OK"});
  EXPECT_EQ(text.shown("Hello"), 5u);
  EXPECT_EQ(text.shown("Hello ST"), 6u);
  EXPECT_EQ(text.shown("Hello O"), 6u);
  EXPECT_EQ(text.shown("Hello STO"), 6u);
  EXPECT_EQ(text.shown("Hello\xef\xbf\xbd"), 5u);
}

TEST_F(AnswerTextTest, ComesInPiecesThatMakeTheWhole) {
  const std::string answer = "naïve 日本語 🙂 end STOPPED";
  const AnswerText text(*tokenizer_, {"STOP"});
  const std::vector<int32_t> all = ids(answer);
  std::string shown;
  for (size_t count = 1; count <= all.size(); count++) {
    const std::string so_far = text.text({all.data(), count});
    const size_t end = text.shown(so_far);
    if (end < shown.size()) continue;
    EXPECT_EQ(so_far.substr(0, shown.size()), shown);
    shown = so_far.substr(0, end);
  }
  EXPECT_EQ(shown, "naïve 日本語 🙂 end ");
}

}  // namespace
}  // namespace trainer
