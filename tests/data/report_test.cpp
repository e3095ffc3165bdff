// The data report: every count, on data small enough to count by hand.
#include "trainer/data/report.h"

#include <nlohmann/json.hpp>

#include "data/fixture.h"
#include "data/measure.h"

namespace trainer {
namespace {

using Json = nlohmann::json;

class ReportTest : public DataTest {
 protected:
  // Makes the report as `trainer data` does, except samples and padding.
  RunDataReport report_on(std::string_view train, std::string_view eval = "") const {
    const Dataset train_set = open(write("train.jsonl", train));
    std::optional<Dataset> eval_set;
    if (!eval.empty()) eval_set = open(write("eval.jsonl", eval));
    RunDataReport report;
    report.train = train_set.report();
    if (eval_set) report.eval = eval_set->report();
    count_repeats(train_set, eval_set ? &*eval_set : nullptr, report);
    return report;
  }
  std::vector<std::string> places(const RowCount& rows) const {
    std::vector<std::string> places;
    for (const NamedRow& row : rows.first)
      places.push_back(std::filesystem::path(row.origin).filename().string() +
                       (row.note.empty() ? "" : " = " + std::filesystem::path(row.note).filename().string()));
    return places;
  }
};

using Places = std::vector<std::string>;

std::string row(const std::string& input, const std::string& target) {
  return concat("{\"input\": \"", input, "\", \"target\": \"", target, "\"}\n");
}

// ---- lengths

TEST(LengthCountsTest, PercentilesAreThoseOfTheNearestRank) {
  LengthCounts lengths;
  for (int64_t length = 1; length <= 200; length++) lengths.add(length);
  EXPECT_EQ(lengths.percentile(0.5), 100);
  EXPECT_EQ(lengths.percentile(0.9), 180);
  EXPECT_EQ(lengths.percentile(0.99), 198);
  EXPECT_EQ(lengths.longest(), 200);
  EXPECT_DOUBLE_EQ(lengths.mean(), 100.5);
  EXPECT_EQ(LengthCounts().percentile(0.5), 0);
  EXPECT_EQ(LengthCounts().longest(), 0);
}

TEST(LengthCountsTest, TextsOfMegabytesCountLikeOthers) {
  LengthCounts lengths, others;
  lengths.add(3, 2);
  others.add(30'000'000);
  others.add(3);
  lengths.merge(others);
  EXPECT_EQ(lengths.count(), 4);
  EXPECT_EQ(lengths.total(), 30'000'009);
  EXPECT_EQ(lengths.percentile(0.75), 3);
  EXPECT_EQ(lengths.longest(), 30'000'000);
  EXPECT_EQ(lengths.counts(), (std::map<int64_t, int64_t>{{3, 3}, {30'000'000, 1}}));
}

TEST(LengthCountsTest, TheHistogramDoublesFromBucketToBucket) {
  LengthCounts lengths;
  for (const int64_t length : {0, 1, 2, 3, 3, 9}) lengths.add(length);
  std::vector<std::string> buckets;
  for (const LengthCounts::Bucket& bucket : lengths.histogram())
    buckets.push_back(concat(bucket.from, "-", bucket.to, ": ", bucket.count));
  EXPECT_EQ(buckets, (std::vector<std::string>{"0-0: 1", "1-1: 1", "2-3: 3", "4-7: 0", "8-15: 1"}));
}

// ---- counts

TEST_F(ReportTest, CountsTruncatedRowsAndTokens) {
  config_.data.max_source_length = 4;
  config_.data.max_target_length = 3;
  const DataReport report = report_on(row("one two three four five", "one") +            // 6 and 2 tokens
                                      row("one", "one two three") +                      // 2 and 4
                                      row("one two three four", "one two three four") +  // 5 and 5
                                      row("one", "two"))
                                .train;
  EXPECT_EQ(report.rows, 4);
  EXPECT_EQ(report.samples, 4);
  EXPECT_EQ(report.input.truncated, 2);
  EXPECT_EQ(report.input.tokens_lost, 3);
  EXPECT_EQ(report.target.truncated, 2);
  EXPECT_EQ(report.target.tokens_lost, 3);
  EXPECT_EQ(report.truncated.count, 3);
  EXPECT_EQ(places(report.truncated), (Places{"train.jsonl:1", "train.jsonl:2", "train.jsonl:3"}));
  EXPECT_EQ(report.input.lengths.counts(), (std::map<int64_t, int64_t>{{2, 2}, {5, 1}, {6, 1}}));
  EXPECT_EQ(report.input.tokens, 4 + 2 + 4 + 2);
  EXPECT_EQ(report.input.longest, 4);
  EXPECT_EQ(report.supervised_tokens, report.target.tokens);
}

TEST_F(ReportTest, CountsDroppedRowsAsRowsThatLoseSomething) {
  config_.data.max_source_length = 3;
  config_.data.long_samples = LongSamples::drop;
  const DataReport report = report_on(row("one two three", "one") + row("one two", "one")).train;
  EXPECT_EQ(report.rows, 2);
  EXPECT_EQ(report.samples, 1);
  EXPECT_EQ(report.dropped_rows, 1);
  EXPECT_EQ(places(report.truncated), Places{"train.jsonl:1"});
}

TEST_F(ReportTest, CountsEmptyInputsAndTargets) {
  const DataReport report =
      report_on(row("", "one") + row("one", "") + row(" \\n\\t", "one") + row("one", "two")).train;
  EXPECT_EQ(report.input.empty.count, 2);
  EXPECT_EQ(places(report.input.empty), (Places{"train.jsonl:1", "train.jsonl:3"}));
  EXPECT_EQ(places(report.target.empty), Places{"train.jsonl:2"});
}

TEST_F(ReportTest, CountsMalformedRowsThatAreSkipped) {
  config_.data.bad_rows = BadRows::skip;
  const DataReport report =
      report_on(row("one", "two") + "{\"input\": 1}\n" + row("two", "one") + "nonsense\n").train;
  EXPECT_EQ(report.rows, 4);
  EXPECT_EQ(report.samples, 2);
  EXPECT_EQ(report.malformed.count, 2);
  ASSERT_EQ(report.malformed.first.size(), 2u);
  EXPECT_TRUE(ends(report.malformed.first[0].origin, "train.jsonl:2"));
  EXPECT_TRUE(has(report.malformed.first[0].note, "field \"input\" is a number"));
  EXPECT_TRUE(ends(report.malformed.first[1].origin, "train.jsonl:4"));
  EXPECT_TRUE(has(report.malformed.first[1].note, "malformed JSON"));
}

TEST_F(ReportTest, NamesTheFirstRowsHoweverManyWorkersThereAre) {
  std::string content;
  for (int i = 1; i <= 3000; i++) content += row(i % 500 == 7 ? "" : concat("one ", 10 + i % 900), "two");
  for (const int workers : {1, 4}) {
    config_.training.num_workers = workers;
    const DataReport report = report_on(content).train;
    EXPECT_EQ(report.input.empty.count, 6);
    EXPECT_EQ(places(report.input.empty), (Places{"train.jsonl:7", "train.jsonl:507", "train.jsonl:1007",
                                                  "train.jsonl:1507", "train.jsonl:2007"}));
  }
}

TEST_F(ReportTest, AddsUpTheFilesOfASet) {
  config_.data.max_source_length = 2;
  write("part-1.jsonl", row("one", "two") + row("one two", "two") + row("é", ""));
  write("part-2.jsonl", row("one two three", "two") + row("one", "two"));
  const Dataset set = open((folder_ / "part-*.jsonl").string());
  const DataReport& report = set.report();
  EXPECT_EQ(report.rows, 5);
  EXPECT_EQ(report.input.tokens_lost, 1 + 2);
  EXPECT_EQ(places(report.truncated), (Places{"part-1.jsonl:2", "part-2.jsonl:1"}));
  EXPECT_EQ(places(report.unknown), Places{"part-1.jsonl:3"});
  EXPECT_EQ(report.input.unknown_characters, std::set<std::string>{"é"});
  EXPECT_EQ(places(report.target.empty), Places{"part-1.jsonl:3"});
  RunDataReport both{.train = report, .eval = {}, .overlap = {}, .padding = {}, .samples = {}};
  count_repeats(set, nullptr, both);
  EXPECT_EQ(places(both.train.duplicates), Places{"part-2.jsonl:2 = part-1.jsonl:1"});
}

TEST_F(ReportTest, AStoredIndexGivesTheSameReport) {
  config_.data.cache = (folder_ / "cache").string();
  config_.data.max_source_length = 3;
  config_.data.bad_rows = BadRows::skip;
  const std::string content = row("one two three", "") + row("é é", "{ }") + row("", "one") + "no\n" +
                              row("é é", "{ }") + row("one", "two");
  RunDataReport first = report_on(content, row("one", "three")),
                second = report_on(content, row("one", "three"));
  ASSERT_FALSE(std::filesystem::is_empty(folder_ / "cache" / "index"));
  EXPECT_EQ(to_json_text(first), to_json_text(second));
  EXPECT_EQ(second.train.unknown.count, 2);
  EXPECT_EQ(places(second.train.duplicates), Places{"train.jsonl:5 = train.jsonl:2"});
}

// ---- what repeats

TEST(RepeatsTest, FindsEachRowThatEqualsAnEarlierOne) {
  std::vector<uint64_t> hashes;
  for (uint64_t i = 0; i < 100'000; i++) hashes.push_back(i % 99'990 * 0x9e3779b97f4a7c15ull);
  const Repeats repeats = find_repeats(hashes, 3);
  EXPECT_EQ(repeats.count, 10);
  ASSERT_EQ(repeats.first.size(), 3u);
  for (int64_t i = 0; i < 3; i++) {
    EXPECT_EQ(repeats.first[static_cast<size_t>(i)].row, 99'990 + i);
    EXPECT_EQ(repeats.first[static_cast<size_t>(i)].same_as, i);
  }
  EXPECT_EQ(find_repeats({5, 5, 5}, 3).count, 2);
  EXPECT_EQ(find_repeats({}, 3).count, 0);
}

TEST_F(ReportTest, ARowIsRepeatedWhenInputAndTargetAreTheSame) {
  const DataReport report = report_on(row("one", "two") + row("one", "three") + row("two", "two") +
                                      row("one", "two") + row("one", "two"))
                                .train;
  EXPECT_EQ(report.duplicates.count, 2);
  EXPECT_EQ(places(report.duplicates),
            (Places{"train.jsonl:4 = train.jsonl:1", "train.jsonl:5 = train.jsonl:1"}));
}

TEST_F(ReportTest, OtherFieldsOfARowMakeNoDifference) {
  const DataReport report = report_on(
                                "{\"input\": \"one\", \"target\": \"two\", \"id\": 1}\n"
                                "{\"id\": 2, \"target\": \"two\", \"input\": \"one\"}\n")
                                .train;
  EXPECT_EQ(report.duplicates.count, 1);
}

TEST_F(ReportTest, OverlapIsByInputAndByBoth) {
  const RunDataReport report = report_on(row("one", "two") + row("two", "two") + row("three", "four"),
                                         row("one", "three") + row("two", "two") + row("six", "two"));
  ASSERT_TRUE(report.overlap);
  EXPECT_EQ(report.overlap->same_input.count, 2);
  EXPECT_EQ(places(report.overlap->same_input),
            (Places{"eval.jsonl:1 = train.jsonl:1", "eval.jsonl:2 = train.jsonl:2"}));
  EXPECT_EQ(report.overlap->same_both.count, 1);
  EXPECT_EQ(places(report.overlap->same_both), Places{"eval.jsonl:2 = train.jsonl:2"});
  EXPECT_TRUE(has(
      join(report.repeat_lines(), "\n"),
      "eval data: warning: the input of 2 (66.7 %) rows is in the training data, 1 of them with its target"));
  const RunDataReport others = report_on(row("one", "two"), row("one", "three"));
  EXPECT_TRUE(has(join(others.repeat_lines(), "\n"),
                  "the input of 1 (100.0 %) rows is in the training data, with other targets: "));
}

TEST_F(ReportTest, PiecesOfARowAreNotRepeats) {
  config_.data.kind = DataKind::text;
  config_.data.max_length = 3;
  config_.data.long_samples = LongSamples::split;
  const Dataset set = open(write("train.jsonl",
                                 "{\"text\": \"one one one one one one\"}\n"
                                 "{\"text\": \"two\"}\n"
                                 "{\"text\": \"one one one one one one\"}\n"),
                           false);
  RunDataReport report;
  report.train = set.report();
  count_repeats(set, nullptr, report);
  EXPECT_GT(set.size(), 3);
  EXPECT_EQ(report.train.split_rows, 2);
  EXPECT_EQ(report.train.duplicates.count, 1);
  EXPECT_EQ(places(report.train.duplicates), Places{"train.jsonl:3 = train.jsonl:1"});
}

// ---- padding

TEST_F(ReportTest, PaddingIsThatOfTheMicroBatchesOfAnEpoch) {
  const Dataset set = open(write("train.jsonl", row("one two three", "one") +          // 4 and 2 tokens
                                                    row("one", "one") +                // 2 and 2
                                                    row("one two", "one two three") +  // 3 and 4
                                                    row("one", "one")));
  CutLimits limits;
  limits.by = MicroBatching::samples;
  limits.batch_size = 2;
  const SampleOrder order(set.size(), /*shuffle=*/false, 0);
  const PaddingReport all = measure_padding(set, order, 4, limits);
  EXPECT_EQ(all.steps, 1);
  EXPECT_EQ(all.micro_batches, 2);
  EXPECT_EQ(all.samples, 4);
  EXPECT_EQ(all.tokens, 4 + 2 + 2 + 2 + 3 + 4 + 2 + 2);
  EXPECT_EQ(all.padded_tokens, 2 * 4 + 2 * 2 + 2 * 3 + 2 * 4);
  EXPECT_DOUBLE_EQ(all.share(), 1.0 - 21.0 / 26.0);
  const PaddingReport half = measure_padding(set, order, 2, limits, /*most_samples=*/2);
  EXPECT_EQ(half.steps, 1);
  EXPECT_EQ(half.tokens, 10);
}

// ---- limits

TEST_F(ReportTest, LimitsNameTheNumbersTheRowsAndWhatToDo) {
  config_.data.max_source_length = 3;
  const RunDataReport report =
      report_on(row("one two three four", "one") + row("one", "é") + row("one", "two"));
  EXPECT_NO_THROW(check_limits(report, config_.data));
  config_.data.max_truncated = 0.5;
  config_.data.max_unknown = 0.34;
  EXPECT_NO_THROW(check_limits(report, config_.data));
  config_.data.max_truncated = 0.01;
  config_.data.max_unknown = 0;
  const std::string message = error_of([&] { check_limits(report, config_.data); });
  EXPECT_TRUE(has(message,
                  "1 of 3 rows (33.3 %) lose 2 tokens because they are too long, and data.max_truncated "
                  "is 0.01: train.jsonl:1. Raise data.max_source_length (99 % of all sources have at "
                  "most 5 tokens, the longest 5)"));
  EXPECT_TRUE(has(message,
                  "1 of 3 rows (33.3 %) have text that the tokenizer does not know, and data.max_unknown "
                  "is 0: train.jsonl:2. The characters: é"));
}

TEST_F(ReportTest, TheLimitOfMalformedRowsIsAShareOfAllRows) {
  config_.data.bad_rows = BadRows::skip;
  const RunDataReport report = report_on(row("one", "two") + "{}\n");
  config_.data.max_malformed = 0.5;
  EXPECT_NO_THROW(check_limits(report, config_.data));
  config_.data.max_malformed = 0.4;
  EXPECT_TRUE(
      has(error_of([&] { check_limits(report, config_.data); }),
          "1 of 2 rows (50.0 %) are skipped, and data.max_malformed is 0.4: train.jsonl:2. The first: "
          "field \"input\" is missing"));
}

// ---- what is shown

TEST_F(ReportTest, JsonHasTheDocumentedKeys) {
  config_.data.max_source_length = 3;
  const Json json =
      Json::parse(to_json_text(report_on(row("one two three four", "one") + row("é", ""), row("é", "one"))));
  const Json& train = json.at("train");
  EXPECT_EQ(train.at("kind"), "seq2seq");
  EXPECT_EQ(train.at("rows"), 2);
  EXPECT_EQ(train.at("samples"), 2);
  EXPECT_EQ(train.at("truncated").at("share"), 0.5);
  EXPECT_EQ(train.at("input").at("field"), "input");
  EXPECT_EQ(train.at("input").at("lengths").at("max"), 5);
  EXPECT_EQ(train.at("input").at("lengths").at("p50"), 2);
  EXPECT_EQ(train.at("input").at("lengths").at("histogram"),
            Json::parse(R"([{"from": 2, "to": 3, "count": 1}, {"from": 4, "to": 7, "count": 1}])"));
  EXPECT_EQ(train.at("input").at("truncated"),
            Json::parse(R"({"count": 1, "share": 0.5, "tokens_lost": 2})"));
  EXPECT_EQ(train.at("input").at("unknown").at("characters"), Json::parse(R"(["é"])"));
  EXPECT_EQ(train.at("target").at("empty").at("count"), 1);
  EXPECT_EQ(train.at("supervised_tokens"), 2 + 1);
  EXPECT_EQ(json.at("overlap").at("same_input").at("count"), 1);
  EXPECT_EQ(json.at("overlap").at("same_both").at("count"), 0);
  for (const char* key : {"effective_batch_size", "steps", "tokens", "supervised_tokens", "padding"})
    EXPECT_TRUE(json.at("epoch").contains(key)) << key;
}

TEST_F(ReportTest, NoLineIsWiderThanTheTerminal) {
  RunDataReport report =
      report_on(row("one two three four", "one") + row("é", "") + row("é", ""), row("é", "one"));
  report.samples.push_back(
      {"train.jsonl:1", {{std::string(3000, 'x'), false}}, {{"one\n</s>", true}}, 3, 2, 2});
  for (const size_t width : {size_t{80}, size_t{120}}) {
    std::istringstream lines(to_text(report, {.width = width, .colour = false}));
    for (std::string line; std::getline(lines, line);) {
      if (line.find(folder_.string()) != std::string::npos) continue;  // a path is not split
      const auto characters = std::ranges::count_if(line, [](char c) { return (c & 0xc0) != 0x80; });
      EXPECT_LE(characters, static_cast<std::ptrdiff_t>(width)) << line;
    }
  }
  const std::string text = to_text(report, {});
  EXPECT_TRUE(has(text, "[[one\\n</s>]]"));
  EXPECT_TRUE(has(text, "xxx … ("));
  EXPECT_TRUE(has(to_text(report, {.width = 0, .colour = true}), "\x1b[32mone\\n</s>\x1b[0m"));
}

// ---- marks of rows

TEST_F(ReportTest, MarksOfAllRowsThatAreNotUsedAreNamed) {
  const std::string marked = R"({"input": "a", "target": "b", "train": false})";
  const RunDataReport report = report_on(row("a", "b") + marked + "\n" + row("c", "d") +
                                         R"({"input": "c", "target": "e", "loss_mask": [0, 1]})" + "\n");
  EXPECT_EQ(report.train.unused_marks.count, 2);
  EXPECT_EQ(places(report.train.unused_marks), (Places{"train.jsonl:2", "train.jsonl:4"}));
  EXPECT_EQ(report.train.unused_mark_fields, (std::set<std::string>{"loss_mask[]", "train"}));
  const std::string lines = join(report.train.lines(), "\n");
  EXPECT_TRUE(has(lines, "warning: the rows have a field \"train\", which is not used: 2 (50.0 %) rows"))
      << lines;
  EXPECT_TRUE(has(lines, "data.loss_weight=train")) << lines;
  EXPECT_TRUE(has(lines, "warning: the rows have a list \"loss_mask\", which is not used")) << lines;
  EXPECT_TRUE(has(to_text(report, {}), "loss_mask[]"));
  EXPECT_EQ(Json::parse(to_json_text(report))["train"]["unused_marks"]["count"], 2);
}

TEST_F(ReportTest, MarksThatAreUsedOrIgnoredOrSayNothingAreNot) {
  const std::string rows = R"({"input": "a", "target": "b", "train": 0.5, "weight": null, "loss": {}})"
                           "\n";
  config_.data.loss_weight = "train";
  EXPECT_EQ(report_on(rows).train.unused_marks.count, 0);
  config_.data.loss_weight = "";
  EXPECT_EQ(report_on(rows).train.unused_marks.count, 1);
  config_.data.unknown_marks = UnknownMarks::ignore;
  EXPECT_EQ(report_on(rows).train.unused_marks.count, 0);
}

}  // namespace
}  // namespace trainer
