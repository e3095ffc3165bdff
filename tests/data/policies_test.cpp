// Rows that are too long or cannot be used are handled as the configuration says.
#include "data/fixture.h"

namespace trainer {
namespace {

class Policies : public DataTest {
 protected:
  struct Skipped {
    std::string file, problem, beginning;
    int64_t line;
  };
  static std::vector<Skipped> skipped(const Dataset& data) {
    std::vector<Skipped> rows;
    data.for_each_skipped_row([&](const SkippedRow& row) {
      rows.push_back(
          {std::filesystem::path(row.file).filename(), row.problem, std::string(row.beginning), row.line});
    });
    return rows;
  }
};

constexpr const char* kGood = "{\"input\": \"one\", \"target\": \"two\"}\n";

// ---- too long

TEST_F(Policies, TruncationOnTheLeftKeepsTheEnd) {
  config_.data.truncation_side = TruncationSide::left;
  config_.data.max_source_length = config_.data.max_target_length = 2;
  const Dataset seq2seq = data("{\"input\": \"one two three\", \"target\": \"four five six\"}");
  EXPECT_EQ(seq2seq.sample(0).input_ids, (Ids{6, 1}));
  EXPECT_EQ(seq2seq.sample(0).labels, (Ids{9, 1}));
  config_.data.max_length = 4;
  const Dataset completion = data(
      "{\"prompt\": \"one two\", \"completion\": \"three\"}\n"         // 5
      "{\"prompt\": \"one\", \"completion\": \"three four five\"}\n",  // 6
      false);
  EXPECT_EQ(completion.sample(0).input_ids, (Ids{4, 5, 6, 1}));
  EXPECT_EQ(completion.sample(0).labels, (Ids{kIgnore, kIgnore, 6, 1}));
  EXPECT_EQ(completion.sample(1).labels, (Ids{6, 7, 8, 1}));
  EXPECT_EQ(completion.report().input.truncated, 2);
  EXPECT_EQ(completion.report().target.truncated, 0);
  EXPECT_EQ(completion.lengths(0).input_tokens, 2);
  EXPECT_EQ(completion.lengths(1).input_tokens, 0);
  EXPECT_EQ(data("{\"text\": \"one two three four\"}", false).sample(0).input_ids, (Ids{5, 6, 7, 1}));
}

TEST_F(Policies, LongRowsAreLeftOut) {
  config_.data.long_samples = LongSamples::drop;
  config_.data.max_source_length = 3;
  const Dataset set = data(
      "{\"input\": \"one two three\", \"target\": \"one\"}\n"
      "{\"input\": \"one two\", \"target\": \"two\"}\n"
      "{\"input\": \"one two four\", \"target\": \"three\"}\n");
  ASSERT_EQ(set.size(), 1);
  EXPECT_EQ(set.texts(0).target, "two");
  EXPECT_TRUE(ends(set.origin(0), "data.jsonl:2"));
  EXPECT_EQ(set.report().rows, 3);
  EXPECT_EQ(set.report().dropped_rows, 2);
  EXPECT_EQ(set.report().input.truncated, 0);
  EXPECT_EQ(set.report().input.lengths.longest(), 4) << "of all rows";
  EXPECT_EQ(set.report().input.longest, 3);
  EXPECT_TRUE(has(join(set.report().lines(), "\n"), "left out rows that are too long: 2 (66.7 %)"));
}

TEST_F(Policies, NothingButLongRowsIsAnError) {
  config_.data.long_samples = LongSamples::drop;
  config_.data.max_source_length = 1;
  EXPECT_TRUE(has(error(kGood), "data.jsonl: none of the 1 rows gives a sample; all are too long"));
}

// Every token but the first is learned once.
TEST_F(Policies, LongTextsAreSplit) {
  config_.data.long_samples = LongSamples::split;
  config_.data.max_length = 3;
  const Dataset set = data(
      "{\"text\": \"one two\"}\n"  // <s> one two </s>
      "{\"text\": \"one\"}\n"
      "{\"text\": \"one two three four five\"}\n",
      false);
  ASSERT_EQ(set.size(), 6);
  EXPECT_EQ(set.sample(0).input_ids, (Ids{3, 4, 5}));
  EXPECT_EQ(set.sample(1).input_ids, (Ids{5, 1}));
  EXPECT_EQ(set.sample(2).input_ids, (Ids{3, 4, 1}));
  EXPECT_EQ(set.sample(3).input_ids, (Ids{3, 4, 5}));
  EXPECT_EQ(set.sample(4).input_ids, (Ids{5, 6, 7}));
  EXPECT_EQ(set.sample(5).input_ids, (Ids{7, 8, 1}));
  EXPECT_EQ(set.sample(5).labels, set.sample(5).input_ids);
  EXPECT_TRUE(ends(set.origin(5), "data.jsonl:3"));
  const DataReport& report = set.report();
  EXPECT_EQ(report.rows, 3);
  EXPECT_EQ(report.samples, 6);
  EXPECT_EQ(report.split_rows, 2);
  EXPECT_EQ(report.supervised_tokens, 3 + 2 + 6);
  EXPECT_EQ(report.without_supervision, 0);
}

// ---- weights of rows

TEST_F(Policies, RowsHaveTheWeightsOfAField) {
  config_.data.loss_weight = "worth";
  const Dataset set = data(
      "{\"input\": \"one\", \"target\": \"two\", \"worth\": 0.5}\n"
      "{\"input\": \"one\", \"target\": \"two three\", \"worth\": 1}\n"
      "{\"input\": \"one\", \"target\": \"two\", \"worth\": 0}\n");
  EXPECT_EQ(set.sample(0).weights, (std::vector<float>{0.5, 0.5}));
  EXPECT_TRUE(set.sample(1).weights.empty());
  EXPECT_EQ(set.sample(2).labels, (Ids{kIgnore, kIgnore}));
  EXPECT_EQ(set.report().supervised_tokens, 2 + 3);
  EXPECT_EQ(set.report().nothing.not_counted.count, 1);
}

TEST_F(Policies, ARowWithoutItsWeightIsRefused) {
  config_.data.loss_weight = "worth";
  EXPECT_TRUE(has(error(kGood), "data.jsonl:1: field \"worth\" is missing (data.loss_weight)"));
  EXPECT_TRUE(has(error("{\"input\": \"one\", \"target\": \"two\", \"worth\": -1}\n"),
                  "data.jsonl:1: field \"worth\" is -1; data.loss_weight needs a number from 0 (not learned) "
                  "to 1,000,000"));
}

// Also of the pieces of a row, whose ids are stored without weights.
TEST_F(Policies, PiecesOfATextHaveTheWeightOfTheirRow) {
  config_.data.long_samples = LongSamples::split;
  config_.data.max_length = 3;
  config_.data.loss_weight = "worth";
  const Dataset set = data(
      "{\"text\": \"one two three four five\", \"worth\": 0.5}\n"
      "{\"text\": \"one two three\", \"worth\": 0}\n"
      "{\"text\": \"one two three\", \"worth\": 1}\n",
      false);
  ASSERT_EQ(set.size(), 3 + 2 + 2);
  EXPECT_EQ(set.sample(2).labels, (Ids{7, 8, 1}));
  EXPECT_EQ(set.sample(2).weights, (std::vector<float>{0.5, 0.5, 0.5}));
  EXPECT_EQ(set.sample(3).labels, (Ids{kIgnore, kIgnore, kIgnore}));
  EXPECT_EQ(set.sample(5).labels, set.sample(5).input_ids);
  EXPECT_TRUE(set.sample(5).weights.empty());
}

TEST_F(Policies, AnswersAreNotSplit) {
  config_.data.long_samples = LongSamples::split;
  EXPECT_TRUE(starts(error<ConfigError>(kGood), "data.long_samples: split is for running text"));
  EXPECT_TRUE(starts(error<ConfigError>(kGood, false), "data.long_samples: split is for running text"));
}

// ---- bad rows

TEST_F(Policies, BadRowsAreSkippedAndListed) {
  config_.data.bad_rows = BadRows::skip;
  std::string content = kGood;
  const std::vector<std::pair<std::string, std::string>> bad{
      {"{\"input\": \"one\"", "malformed JSON"},
      {"17", "is not a JSON object"},
      {"{\"input\": 3, \"target\": \"x\"}", "field \"input\" is a number"},
      {"{\"input\": \"\xff\", \"target\": \"x\"}", "invalid UTF-8"},
      {std::string("{\"input\": \"\0\", \"target\": \"x\"}", 29), "holds a NUL byte"},
      {std::string(20, '\0'), "holds a NUL byte"},
      {"{\"inputs\": \"one\", \"target\": \"x\"}", "field \"input\" is missing"},
      {"{\"input\": null, \"target\": \"x\"}", "is null"}};
  for (const auto& [row, problem] : bad) content += row + "\n" + kGood;
  for (const int workers : {1, 3}) {
    config_.training.num_workers = workers;
    const Dataset set = data(content);
    EXPECT_EQ(set.size(), std::ssize(bad) + 1);
    for (int64_t i = 0; i < set.size(); i++) EXPECT_EQ(set.texts(i).input, "one");
    EXPECT_TRUE(ends(set.origin(set.size() - 1), concat("data.jsonl:", 2 * bad.size() + 1)));
    EXPECT_EQ(set.report().malformed.count, std::ssize(bad));
    EXPECT_EQ(set.report().rows, 2 * std::ssize(bad) + 1);
    EXPECT_TRUE(has(join(set.report().lines(), "\n"), "warning: skipped 8 (47.1 %) rows: "));
    const std::vector<Skipped> rows = skipped(set);
    ASSERT_EQ(rows.size(), bad.size());
    for (size_t i = 0; i < rows.size(); i++) {
      EXPECT_EQ(rows[i].file, "data.jsonl");
      EXPECT_EQ(rows[i].line, static_cast<int64_t>(2 * i + 2));
      EXPECT_TRUE(has(rows[i].problem, bad[i].second));
      EXPECT_EQ(rows[i].beginning, bad[i].first);
    }
  }
}

TEST_F(Policies, ARowOfManyMegabytesIsABadRow) {
  const std::string content =
      kGood + concat("{\"input\": \"", std::string(100'000'000, 'x'), "\", \"target\": \"two\"}\n") + kGood;
  EXPECT_TRUE(starts(error(content), "data.jsonl:2: the row has 100"));
  config_.data.bad_rows = BadRows::skip;
  const Dataset set = open((folder_ / "data.jsonl").string());
  EXPECT_EQ(set.size(), 2);
  EXPECT_TRUE(ends(set.origin(1), "data.jsonl:3"));
  EXPECT_EQ(skipped(set).at(0).beginning.size(), 200u);
}

TEST_F(Policies, RowsOfTablesAreSkippedToo) {
  config_.data.bad_rows = BadRows::skip;
  const Dataset set = open(write("a.csv", "input,target\none,two\none\n\"a\nb\",c,d\nthree,four\n"));
  ASSERT_EQ(set.size(), 2);
  EXPECT_EQ(set.texts(1).input, "three");
  ASSERT_EQ(skipped(set).size(), 2u);
  EXPECT_EQ(skipped(set)[1].line, 4);
  EXPECT_EQ(skipped(set)[1].beginning, "\"a\nb\",c,d");
}

TEST_F(Policies, OnlyBadRowsAreAnErrorWithEitherPolicy) {
  for (const BadRows policy : {BadRows::error, BadRows::skip}) {
    config_.data.bad_rows = policy;
    EXPECT_TRUE(starts(error("{\n{\n17\n"), "3 of 3 rows cannot be used:\n  data.jsonl:1: malformed"));
  }
}

TEST_F(Policies, AnArrayThatIsNotClosedHasNoRowsToSkip) {
  config_.data.bad_rows = BadRows::skip;
  EXPECT_TRUE(
      has(error(concat("[", kGood, ", {\"input\": \"one")), "the array that starts here is not closed"));
}

}  // namespace
}  // namespace trainer
