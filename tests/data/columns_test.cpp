// Which columns are read and learned, for data that nobody has described.
#include "data/columns.h"

#include <string>
#include <vector>

#include "data/fields.h"
#include "fixture.h"
#include "support/error_message.h"

namespace trainer {
namespace {

using test::error_message;

class ColumnsTest : public DataTest {
 protected:
  Columns look(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name) << content;
    return look_at_columns({DataSource((folder_ / name).string())}, (folder_ / "cache").string());
  }
  FieldChoice choose(const std::string& rows, bool encoder_decoder = true, const FieldChoice& given = {}) {
    return choose_columns(look("rows.jsonl", rows), given, encoder_decoder);
  }
};

// The texts of a choice: "question -> answer".
std::string text_of(const FieldChoice& choice) {
  return concat(choice.input, " -> ", choice.target, choice.sure ? "" : " ?");
}

TEST_F(ColumnsTest, TheFirstRowsOfATableAreListedWithTypesAndExamples) {
  const Columns columns = look("rows.csv", "text,summary,n\n\"a\x1b[31m long\nstory\",short,1\nanother,,2\n");
  EXPECT_EQ(columns.rows, 2);
  EXPECT_EQ(columns.names(), (std::vector<std::string>{"text", "summary", "n"}));
  EXPECT_EQ(columns.find("text")->example, "a\\x1b[31m long\\nstory");
  EXPECT_EQ(columns.find("summary")->filled, 1);
  EXPECT_TRUE(columns.find("n")->numbers);
  EXPECT_NE(columns.lines()[1].find("(in 1 of 2 rows)"), std::string::npos);
}

TEST_F(ColumnsTest, ALongExampleIsShortened) {
  const Columns columns = look("rows.jsonl", concat(R"({"text": ")", std::string(5000, 'x'), "\"}\n"));
  EXPECT_LT(columns.find("text")->example.size(), 80u);
}

TEST_F(ColumnsTest, TextsInsideOfObjectsAreColumnsToo) {
  const Columns columns =
      look("rows.jsonl",
           R"({"translation": {"de": "Haus", "en": "house"}, "answers": {"text": ["a", "b"], "n": [1]}})");
  EXPECT_EQ(columns.names(), (std::vector<std::string>{"translation", "translation.de", "translation.en",
                                                       "answers", "answers.text.0"}));
  EXPECT_EQ(columns.find("translation")->type, "object");
}

TEST_F(ColumnsTest, RowsThatCannotBeParsedArePassedOver) {
  EXPECT_EQ(look("rows.jsonl", "{\"text\": \n{\"text\": \"one\"}\n").rows, 1);
  EXPECT_TRUE(error_message<DataError>([&] {
                look("bad.jsonl", "{\"text\": \n");
              }).find("bad.jsonl:1: malformed") != std::string::npos);
}

TEST_F(ColumnsTest, PairsThatDataSetsUseAreKnown) {
  EXPECT_EQ(text_of(choose(R"({"text": "a", "summary": "b"})")), "text -> summary");
  EXPECT_EQ(text_of(choose(R"({"text": "a", "summary": "b"})", false)), "text -> summary");
  EXPECT_EQ(text_of(choose(R"({"id": "1", "article": "a", "highlights": "b"})")), "article -> highlights");
  EXPECT_EQ(text_of(choose(R"({"document": "a", "summary": "b", "id": "7"})")), "document -> summary");
  EXPECT_EQ(text_of(choose(R"({"prompt": "a", "response": "b"})", false)), "prompt -> response");
  EXPECT_EQ(text_of(choose(R"({"query": "a", "response": "b"})", false)), "query -> response");
  EXPECT_EQ(text_of(choose(R"({"Text": "a", "Summary": "b"})")), "Text -> Summary");
}

TEST_F(ColumnsTest, AContextStandsBeforeItsQuestion) {
  EXPECT_EQ(text_of(choose(
                R"({"context": "c", "question": "q", "answers": {"text": ["a"], "answer_start": [0]}})")),
            "{context}\n\n{question} -> answers.text.0");
  EXPECT_EQ(text_of(choose(R"({"instruction": "i", "context": "c", "response": "r"})", false)),
            "{context}\n\n{instruction} -> response");
}

TEST_F(ColumnsTest, AnInstructionComesWithItsInput) {
  const FieldChoice chat = choose(R"({"instruction": "i", "input": "", "output": "o"})", false);
  EXPECT_EQ(chat.kind, DataKind::chat);
  FieldChoice completion;
  completion.kind = DataKind::completion;
  EXPECT_EQ(text_of(choose(R"({"instruction": "i", "input": "", "output": "o"})", false, completion)),
            "{instruction}\n{input} -> output");
}

TEST_F(ColumnsTest, ALabelThatIsANumberIsWrittenByATemplate) {
  EXPECT_EQ(text_of(choose(R"({"text": "good", "label": 1})")), "text -> {label}");
  EXPECT_EQ(text_of(choose(R"({"text": "good", "label": "pos"})", false)), "text -> label");
}

TEST_F(ColumnsTest, TheDirectionOfATranslationIsAGuess) {
  EXPECT_EQ(text_of(choose(R"({"de": "Haus", "en": "house"})")), "de -> en ?");
  EXPECT_EQ(text_of(choose(R"({"translation": {"en": "house", "de": "Haus"}})")),
            "translation.en -> translation.de ?");
  EXPECT_EQ(text_of(choose(R"({"id": "1", "en": "house", "de": "Haus"})")), "en -> de ?");
}

TEST_F(ColumnsTest, ConversationsAreFoundAlsoAsTextInATable) {
  EXPECT_EQ(choose(R"({"messages": [{"role": "user", "content": "q"}]})", false).kind, DataKind::chat);
  const Columns table =
      look("rows.csv", "messages\n\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"q\"\"}]\"\n");
  EXPECT_EQ(table.find("messages")->type, "messages");
  EXPECT_EQ(choose_columns(table, {}, false).kind, DataKind::chat);
  EXPECT_NE(error_message<DataError>([&] {
              choose(R"({"turns": [{"from": "human", "value": "q"}]})", false);
            }).find("rename it"),
            std::string::npos);
}

TEST_F(ColumnsTest, RunningTextIsForDecoders) {
  EXPECT_EQ(choose(R"({"text": "a"})", false).kind, DataKind::text);
  EXPECT_NE(error_message<DataError>([&] { choose(R"({"text": "a"})", true); }).find("\"text\" only"),
            std::string::npos);
}

TEST_F(ColumnsTest, OtherNamesAreAGuessThatSaysSo) {
  EXPECT_EQ(text_of(choose(R"({"complaint": "a long text about much", "team": "sales"})")),
            "complaint -> team ?");
  EXPECT_NE(error_message<DataError>([&] { choose(R"({"a": 1, "b": [2]})"); }).find("no column has text"),
            std::string::npos);
}

TEST_F(ColumnsTest, WhatIsGivenIsChecked) {
  FieldChoice given;
  given.input = "Summarise: {text}";
  EXPECT_EQ(text_of(choose(R"({"text": "a", "summary": "b"})", true, given)), "Summarise: {text} -> summary");
  given.target = "sumary";
  const std::string message =
      error_message<ConfigError>([&] { choose(R"({"text": "a", "summary": "b"})", true, given); });
  EXPECT_NE(message.find("did you mean summary?"), std::string::npos) << message;
}

// The table is looked through in training, too: without a null at its end.
TEST(KnownPairs, AllHaveTwoNames) {
  for (const KnownPair& pair : known_pairs()) {
    ASSERT_NE(pair.input, nullptr);
    ASSERT_NE(pair.target, nullptr);
    EXPECT_STRNE(pair.input, pair.target);
  }
}

TEST_F(ColumnsTest, TrainingReadsFieldsInsideOfObjectsAndNumbersInTemplates) {
  config_.data.input = "translation.de";
  config_.data.target = "{n} {translation.en} {ok}";
  const std::string row = R"({"translation": {"de": "one", "en": "two"}, "n": 12, "ok": true})";
  const Dataset rows = data(row);
  EXPECT_EQ(rows.texts(0).input, "one");
  EXPECT_EQ(rows.texts(0).target, "12 two true");
  config_.data.target = "n";
  EXPECT_TRUE(has(error(row), "\"n\" is a number, not text"));
  config_.data.target = "translation.fr";
  EXPECT_TRUE(has(error(row), "field \"translation.fr\" is missing"));
}

TEST_F(ColumnsTest, TrainingOfAnEncoderDecoderReadsTextAndSummary) {
  EXPECT_EQ(data(R"({"text": "one two", "summary": "one"})").report().target_field, "summary");
  EXPECT_EQ(data(R"({"text": "one two", "summary": "one"})", false).report().kind, DataKind::text);
}

}  // namespace
}  // namespace trainer
