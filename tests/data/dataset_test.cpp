// From rows to samples: formats, fields, templates, truncation, and the report on all of it.
#include "trainer/data/dataset.h"

#include <gmock/gmock.h>
#include <thread>

#include <nlohmann/json.hpp>

#include "data/encode.h"
#include "data/fixture.h"

namespace trainer {
namespace {

using DatasetTest = DataTest;

// ---- files

TEST_F(DatasetTest, EveryRowIsASampleInFileOrder) {
  const Dataset set =
      data("{\"input\": \"one two\", \"target\": \"three\"}\n{\"input\": \"four\", \"target\": \"\"}");
  ASSERT_EQ(set.size(), 2);
  EXPECT_EQ(set.sample(0).input_ids, (Ids{4, 5, 1}));
  EXPECT_EQ(set.sample(0).labels, (Ids{6, 1}));
  EXPECT_EQ(set.sample(1).input_ids, (Ids{7, 1}));
  EXPECT_EQ(set.sample(1).labels, (Ids{1}));
}

TEST_F(DatasetTest, ByteOrderMarkCrlfBlanksAndBlankLines) {
  const Dataset set = data(
      "\xef\xbb\xbf\r\n{\"input\": \"one\", \"target\": \"two\"}\r\n\r\n  \n"
      "  {\"input\": \"three\", \"target\": \"four\"}\t\r\n");
  ASSERT_EQ(set.size(), 2);
  EXPECT_EQ(set.texts(0).target, "two");
  EXPECT_EQ(set.texts(1).input, "three");
  EXPECT_TRUE(ends(set.origin(0), "data.jsonl:2"));
  EXPECT_TRUE(ends(set.origin(1), "data.jsonl:5"));
}

TEST_F(DatasetTest, FileThatIsOneArray) {
  const Dataset set = data(
      "[\n  {\"input\": \"a ] } , \\\" b\",\n   \"target\": \"two\", \"more\": [1, {\"x\": []}]},\n"
      "  {\"input\": \"c\\\\\", \"target\": \"four\"}\n]\n");
  ASSERT_EQ(set.size(), 2);
  EXPECT_EQ(set.texts(0).input, "a ] } , \" b");
  EXPECT_EQ(set.texts(1).input, "c\\");
  EXPECT_TRUE(ends(set.origin(1), "data.jsonl:4"));
}

TEST_F(DatasetTest, SeveralFiles) {
  const std::string a =
      write("a.jsonl", "{\"input\": \"a\", \"target\": \"x\"}\n{\"input\": \"b\", \"target\": \"x\"}\n");
  const std::string b = write("b.jsonl", "\n{\"input\": \"c\", \"target\": \"x\"}");
  const Dataset set = Dataset::open({a, b}, config_, t5_, true);
  ASSERT_EQ(set.size(), 3);
  EXPECT_EQ(set.texts(1).input, "b");
  EXPECT_EQ(set.texts(2).input, "c");
  EXPECT_EQ(set.origin(2), b + ":2");
}

TEST_F(DatasetTest, EscapesUnicodeAndRepeatedKeysAsInPython) {
  const Dataset set =
      data("{\"input\": \"first\", \"t\\u0061rget\": \"\\ud83d\\ude00\\n\\\"ä\", \"input\": \"last\"}");
  EXPECT_EQ(set.texts(0).input, "last");
  EXPECT_EQ(set.texts(0).target, "😀\n\"ä");
}

TEST_F(DatasetTest, SamplesFromSeveralThreadsAreTheSame) {
  std::string content;
  for (int i = 10; i < 500; i++) content += concat("{\"input\": \"", i, "\", \"target\": \"", i + 1, "\"}\n");
  config_.training.num_workers = 3;
  const Dataset set = data(content);
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; t++) {
    threads.emplace_back([&] {
      for (int i = 0; i < 490; i++) wrong += set.sample(i).input_ids != Ids{i + 10, 1};
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

// ---- fields and kinds

TEST_F(DatasetTest, FieldsAreFoundByTheirUsualNames) {
  const std::vector<std::pair<std::string, std::string>> pairs{{"input", "target"},
                                                               {"source", "target"},
                                                               {"prompt", "completion"},
                                                               {"question", "answer"},
                                                               {"input", "output"}};
  for (const auto& [input, target] : pairs) {
    const Dataset set = data(concat("{\"id\": 7, \"", target, "\": \"two\", \"", input, "\": \"one\"}"));
    EXPECT_EQ(set.report().kind, DataKind::seq2seq);
    EXPECT_EQ(set.report().input_field, input);
    EXPECT_EQ(set.report().target_field, target);
    EXPECT_EQ(set.sample(0).input_ids, (Ids{4, 1}));
    EXPECT_EQ(set.sample(0).labels, (Ids{5, 1}));
  }
}

TEST_F(DatasetTest, FieldByNameAndTemplate) {
  config_.data.input = "Translate {{x}} from {lang}: {de}";
  config_.data.target = "en";
  const Dataset set =
      data("{\"de\": \"eins {zwei}\", \"lang\": \"German\", \"en\": \"one\", \"input\": \"no\"}");
  EXPECT_EQ(set.texts(0).input, "Translate {x} from German: eins {zwei}");
  EXPECT_EQ(set.texts(0).target, "one");
}

TEST_F(DatasetTest, OneFieldConfiguredTheOtherFound) {
  config_.data.input = "Q: {question}";
  const Dataset set = data("{\"question\": \"one\", \"answer\": \"two\"}");
  EXPECT_EQ(set.texts(0).input, "Q: one");
  EXPECT_EQ(set.texts(0).target, "two");
}

TEST_F(DatasetTest, PlainTextOnADecoder) {
  const Dataset set = data("{\"text\": \"one two\"}\n{\"text\": \"three </s>\"}", false);
  EXPECT_EQ(set.report().kind, DataKind::text);
  EXPECT_EQ(set.sample(0).input_ids, (Ids{3, 4, 5, 1}));
  EXPECT_EQ(set.sample(0).labels, (Ids{3, 4, 5, 1}));
  EXPECT_EQ(set.sample(1).input_ids, (Ids{3, 6, 1}));
  EXPECT_EQ(set.report().supervised_tokens, 5);
}

TEST_F(DatasetTest, PlainTextOfANamedField) {
  config_.data.kind = DataKind::text;
  config_.data.input = "{title} {body}";
  EXPECT_EQ(data("{\"title\": \"one\", \"body\": \"two\"}", false).texts(0).input, "one two");
}

TEST_F(DatasetTest, CompletionsOnADecoderLearnTheAnswerOnly) {
  for (const char* row : {"{\"prompt\": \"one two\", \"completion\": \"three four\"}",
                          "{\"input\": \"one two\", \"target\": \"three four\"}",
                          "{\"prompt\": \"one two\", \"completion\": \"three four </s>\"}"}) {
    const Dataset set = data(row, false);
    EXPECT_EQ(set.report().kind, DataKind::completion);
    EXPECT_EQ(set.sample(0).input_ids, (Ids{3, 4, 5, 6, 7, 1}));
    EXPECT_EQ(set.sample(0).labels, (Ids{kIgnore, kIgnore, kIgnore, 6, 7, 1}));
  }
}

// ---- truncation

TEST_F(DatasetTest, TruncationOfSourceAndTargetAsHuggingFace) {
  const auto golden = nlohmann::json::parse(std::ifstream(SOURCE_DIR "/tests/goldens/data/seq2seq.json"));
  ASSERT_FALSE(golden["truncations"].empty());
  for (const auto& entry : golden["truncations"]) {
    config_.data.max_source_length = config_.data.max_target_length = entry["max_length"];
    const std::string text = entry["text"];
    const EncodedSample encoded = encode_samples(text, text, DataKind::seq2seq, config_.data, t5_).front();
    const Ids expected = entry["truncated"];
    EXPECT_EQ(encoded.sample.input_ids, expected) << entry;
    EXPECT_EQ(encoded.sample.labels, expected) << entry;
    const auto lost = static_cast<int64_t>(entry["whole"].size() - entry["truncated"].size());
    EXPECT_EQ(encoded.input_lost, lost) << entry;
    EXPECT_EQ(encoded.target_lost, lost) << entry;
  }
}

TEST_F(DatasetTest, WithoutClosingTokenTruncationOnlyRemovesTokens) {
  Ids ids{4, 5, 6};
  EXPECT_EQ(truncate_keeping_eos(ids, 2, 1, TruncationSide::right), 1);
  EXPECT_EQ(ids, (Ids{4, 5}));
  EXPECT_EQ(truncate_keeping_eos(ids, 2, std::nullopt, TruncationSide::right), 0);
}

TEST_F(DatasetTest, DecodersAreTruncatedOnTheRightAndThenHaveNoEos) {
  config_.data.max_length = 5;
  const Dataset set = data(
      "{\"prompt\": \"one two\", \"completion\": \"three four\"}\n"  // 6: the EOS goes
      "{\"prompt\": \"one two\", \"completion\": \"three\"}\n"       // 5: fits
      "{\"prompt\": \"one two three four five six\", \"completion\": \"three\"}\n"
      "{\"prompt\": \"one two three four\", \"completion\": \"three\"}\n",
      false);
  EXPECT_EQ(set.sample(0).input_ids, (Ids{3, 4, 5, 6, 7}));
  EXPECT_EQ(set.sample(0).labels, (Ids{kIgnore, kIgnore, kIgnore, 6, 7}));
  EXPECT_EQ(set.sample(1).labels, (Ids{kIgnore, kIgnore, kIgnore, 6, 1}));
  EXPECT_EQ(set.sample(2).input_ids, (Ids{3, 4, 5, 6, 7}));
  const DataReport& report = set.report();
  EXPECT_EQ(report.input.truncated, 1);
  EXPECT_EQ(report.target.truncated, 3);
  EXPECT_EQ(report.without_supervision, 2);
  EXPECT_EQ(report.samples, 4);
  EXPECT_EQ(report.supervised_tokens, 4);
  EXPECT_EQ(report.longest_sample, 5);
  EXPECT_TRUE(has(join(report.lines(), "\n"),
                  "warning: completion truncated at data.max_length in 3 (75.0 %) samples"));
  EXPECT_TRUE(has(join(report.lines(), "\n"),
                  "no trainable tokens in 2 (50.0 %) rows: the prompt alone fills data.max_length: "));
}

TEST_F(DatasetTest, LongTextsAreTruncatedOnTheRight) {
  config_.data.max_length = 3;
  const Dataset set = data("{\"text\": \"one two three\"}", false);
  EXPECT_EQ(set.sample(0).input_ids, (Ids{3, 4, 5}));
  EXPECT_TRUE(has(join(set.report().lines(), "\n"),
                  "warning: text truncated at data.max_length in 1 (100.0 %) sample"));
}

// ---- report

TEST_F(DatasetTest, ReportCountsLengthsAndTruncation) {
  config_.data.max_source_length = 4;
  for (int workers : {1, 3}) {
    config_.training.num_workers = workers;
    std::string content;
    for (int i = 0; i < 2000; i++) {
      content += i % 4 == 0 ? "{\"input\": \"one two three four\", \"target\": \"one\"}\n"
                            : "{\"input\": \"one\", \"target\": \"one two three\"}\n";
    }
    const DataReport report = data(content).report();
    EXPECT_EQ(report.samples, 2000);
    EXPECT_EQ(report.input.tokens, 500 * 4 + 1500 * 2);
    EXPECT_EQ(report.target.tokens, 500 * 2 + 1500 * 4);
    EXPECT_EQ(report.supervised_tokens, report.target.tokens);
    EXPECT_EQ(report.input.longest, 4);
    EXPECT_EQ(report.target.longest, 4);
    EXPECT_EQ(report.longest_sample, 6);
    EXPECT_EQ(report.input.truncated, 500);
    EXPECT_EQ(report.target.truncated, 0);
    EXPECT_EQ(
        report.lines(),
        (std::vector<std::string>{
            "2,000 samples, seq2seq: input -> target",
            "source: 5,000 tokens; lengths: mean 2.8, p50 2, p90 5, p99 5, longest 5",
            "target: 7,000 tokens; lengths: mean 3.5, p50 4, p90 4, p99 4, longest 4",
            "warning: source truncated at data.max_source_length in 500 (25.0 %) samples, 500 tokens lost"}));
  }
}

TEST_F(DatasetTest, ReportNamesTheCharactersThatTheTokenizerDoesNotKnow) {
  const Dataset set = data(
      "{\"input\": \"one\", \"target\": \"{ a } b\"}\n"
      "{\"input\": \"é one\", \"target\": \"two {b\"}\n"
      "{\"input\": \"one\", \"target\": \"two\"}\n");
  const DataReport& report = set.report();
  EXPECT_EQ(report.target.unknown_tokens, 3);
  EXPECT_EQ(report.target.with_unknown, 2);
  EXPECT_EQ(report.target.unknown_characters, (std::set<std::string>{"{", "}"}));
  EXPECT_EQ(report.input.unknown_tokens, 1);
  EXPECT_EQ(report.input.unknown_characters, std::set<std::string>{"é"});
  EXPECT_TRUE(has(join(report.lines(), "\n"),
                  "warning: the tokenizer does not know some of the text: 3 <unk> in the targets "
                  "of 2 (66.7 %) samples: { }"));
}

TEST_F(DatasetTest, UnknownTokensOfDecodersAreCountedOnTheirSide) {
  const DataReport report = data("{\"prompt\": \"é one\", \"completion\": \"{ } two\"}", false).report();
  EXPECT_EQ(report.input.unknown_tokens, 1);
  EXPECT_EQ(report.target.unknown_tokens, 2);
}

TEST_F(DatasetTest, CleanDataHaveNoWarnings) {
  for (const std::string& line : data("{\"input\": \"one\", \"target\": \"two\"}").report().lines()) {
    EXPECT_EQ(line.find("warning"), std::string::npos) << line;
  }
}

TEST_F(DatasetTest, RowsOfPreferencesSayWhatCanBeLearned) {
  const char* row = R"({"prompt": "one", "chosen": "two", "rejected": "three"})";
  EXPECT_EQ(
      error(row, false),
      "data.jsonl:1: these rows are preferences (\"chosen\", \"rejected\"): objective.name=dpo trains on "
      "them (docs/preferences.md). To learn the chosen answers alone: data.target=chosen where they "
      "are text; where they are lists of messages, rename the field to \"messages\"");
  config_.data.target = "chosen";
  EXPECT_EQ(data(row, false).texts(0).target, "two");
}

TEST_F(DatasetTest, JudgedAnswersAreNotLearned) {
  for (const char* label : {"true", "false"}) {
    const std::string row = concat(R"({"prompt": "one", "completion": "two", "label": )", label, "}");
    EXPECT_EQ(error(row, false),
              "data.jsonl:1: these rows are judged answers (\"label\" is true or false); objective.name=kto "
              "trains on them (docs/preferences.md), and otherwise the bad answers would be learned, too. Or "
              "keep the rows in which \"label\" is true, and remove that field; if it says something else of "
              "the answer: data.input=prompt data.target=completion");
  }
  for (const char* row :
       {R"({"messages": [{"role": "user", "content": "one"}], "label": true})",
        R"({"conversations": [{"from": "human", "value": "one"}], "label": false})",
        R"({"instruction": "one", "output": "two", "kto_tag": true})",
        R"({"prompt": [{"role": "user", "content": "one"}], "completion": [], "label": true})"})
    EXPECT_NE(error(row, false).find("judged answers"), std::string::npos) << row;
}

TEST_F(DatasetTest, AnyOtherLabelIsAFieldLikeAnother) {
  EXPECT_EQ(data(R"({"prompt": "one", "completion": "two", "label": "good"})", false).size(), 1);
  EXPECT_EQ(data(R"({"text": "one two", "label": true})", false).size(), 1);
  config_.data.input = "prompt";
  config_.data.target = "completion";
  EXPECT_EQ(data(R"({"prompt": "one", "completion": "two", "label": true})", false).texts(0).target, "two");
}

}  // namespace
}  // namespace trainer
