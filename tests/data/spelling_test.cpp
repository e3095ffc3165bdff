// What tokenizers do not give back of what is learned, and BOS and EOS that would stand twice.
#include "data/spelling.h"

#include "trainer/text/tokenizer.h"

#include "data/fixture.h"

namespace trainer {
namespace {

using Characters = std::set<std::string>;

std::unique_ptr<Tokenizer> golden_tokenizer(const std::string& name) {
  return load_tokenizer(std::filesystem::path(SOURCE_DIR) / "tests/goldens/text" / name);
}

Characters lost_of(const Tokenizer& tokenizer, std::string_view text) {
  Characters lost;
  Spelling(tokenizer).find_lost(text, lost);
  return lost;
}

TEST(SpellingTest, T5LosesLineEndsTabsAndRepeatedBlanks) {
  for (const char* name : {"t5", "t5_json"}) {
    const auto t5 = golden_tokenizer(name);
    EXPECT_EQ(lost_of(*t5, "one\ntwo\n  three"), (Characters{"\n", "  "})) << name;
    EXPECT_EQ(lost_of(*t5, "a\tb\r\n"), (Characters{"\t", "\r", "\n"})) << name;
    EXPECT_EQ(lost_of(*t5, "plain words here"), Characters{}) << name;
  }
}

TEST(SpellingTest, ACharacterThatNormalizationReplacesIsLost) {
  const auto t5 = golden_tokenizer("t5");
  EXPECT_EQ(lost_of(*t5, "ﬁne\u00a0e\u0301"), (Characters{"ﬁ", "\u00a0"})) << "a composed é is the same text";
}

TEST(SpellingTest, TokenizersOfBytesKeepEverything) {
  for (const char* name : {"qwen", "llama3", "gpt2", "smollm2", "llama2_v5", "gemma"})
    EXPECT_TRUE(Spelling(*golden_tokenizer(name)).keeps_everything()) << name;
  EXPECT_TRUE(Spelling(WordTokenizer()).keeps_everything()) << "it gives nothing back at all";
}

TEST(SpellingTest, AddedTokensMendIt) {
  const auto t5 = golden_tokenizer("t5");
  t5->add_tokens({"\n", "\t", "  "});
  EXPECT_EQ(lost_of(*t5, "a\tb\nc  d"), Characters{});
}

class SpellingReport : public DataTest {
 protected:
  const std::unique_ptr<Tokenizer> t5_of_goldens_ = golden_tokenizer("t5");
};

TEST_F(SpellingReport, NamesTheRowsWhatIsLostAndTheCure) {
  const std::string path = write("r.jsonl",
                                 "{\"input\": \"a\\nb\", \"target\": \"one\"}\n"
                                 "{\"input\": \"a\", \"target\": \"one\\n  two\"}\n"
                                 "{\"input\": \"b\", \"target\": \"one\\ttwo\"}\n");
  const Dataset data = Dataset::open({path}, config_, *t5_of_goldens_, true);
  const DataReport& report = data.report();
  EXPECT_EQ(report.unspelled.count, 2) << "of inputs nothing is learned";
  EXPECT_EQ(report.unspelled_characters, (Characters{"\t", "\n", "  "}));
  const std::string lines = join(report.lines(), "\n");
  EXPECT_TRUE(has(lines,
                  "warning: the tokenizer does not keep tabs, line ends, repeated blanks of what is learned "
                  "in 2 (66.7 %) rows: "));
  EXPECT_TRUE(has(lines, "(model.add_tokens=[\"\\t\",\"\\n\",\"  \"])"));
  RunDataReport shown;
  shown.train = report;
  EXPECT_TRUE(has(to_text(shown, {}), "not kept"));
  EXPECT_TRUE(has(to_json_text(shown), "\"unspelled\""));
}

TEST_F(SpellingReport, NamesAnswersOfConversations) {
  config_.data.chat_template = write("words.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}");
  const std::string path = write("r.jsonl",
                                 "{\"messages\": [{\"role\": \"user\", \"content\": \"a\\nb\"}, "
                                 "{\"role\": \"assistant\", \"content\": \"c\\td\"}]}\n");
  EXPECT_EQ(Dataset::open({path}, config_, *t5_of_goldens_, true).report().unspelled_characters,
            Characters{"\t"});
}

TEST_F(SpellingReport, WarnsOfBosThatTheTextHasAlready) {
  config_.data.kind = DataKind::completion;
  const Dataset twice = data(
      "{\"input\": \"<s> one\", \"target\": \"two\"}\n{\"input\": \"one\", \"target\": \"two\"}\n", false);
  EXPECT_EQ(twice.report().doubled_ends.count, 1);
  EXPECT_TRUE(has(join(twice.report().lines(), "\n"), "data.jsonl:1; remove it from the data"));
  EXPECT_EQ(data("{\"input\": \"one <s>\", \"target\": \"two </s>\"}\n", false).report().doubled_ends.count,
            0);
  config_.data.kind = DataKind::text;
  EXPECT_EQ(data("{\"text\": \"<s> one\"}\n", false).report().doubled_ends.count, 1);
  config_.data.kind = DataKind::seq2seq;
  EXPECT_EQ(data("{\"input\": \"one </s>\", \"target\": \"two\"}\n").report().doubled_ends.count, 1);
  EXPECT_EQ(data("{\"input\": \"one\", \"target\": \"two </s>\"}\n").report().doubled_ends.count, 1);
}

}  // namespace
}  // namespace trainer
