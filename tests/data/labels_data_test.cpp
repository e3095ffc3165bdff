// Rows with a text and a label: where the label lies, which classes there are, what is refused.
#include <bit>

#include "trainer/data/batching.h"

#include "data/fixture.h"

namespace trainer {
namespace {

constexpr int32_t kNo = kIgnore;  // no label

class LabelsData : public DataTest {
 protected:
  LabelsData() { config_.objective.name = "classification"; }
};

const std::string kThree =
    "{\"text\": \"one two\", \"label\": \"sour\"}\n{\"text\": \"three\", \"label\": \"bitter\"}\n"
    "{\"text\": \"four five six\", \"label\": \"sour\"}";

TEST_F(LabelsData, ADecodersLabelIsBehindTheLastToken) {
  const Dataset rows = data(kThree, false);
  EXPECT_EQ(rows.report().kind, DataKind::classification);
  EXPECT_EQ(rows.labels().classes, (std::vector<std::string>{"bitter", "sour"}));
  EXPECT_EQ(rows.report().labels.at(1), (std::pair<std::string, int64_t>("sour", 2)));
  EXPECT_EQ(rows.sample(0).input_ids, (Ids{3, 4, 5}));
  EXPECT_EQ(rows.sample(0).labels, (Ids{kNo, kNo, kNo, 1}));
  const EffectiveBatch batch = load_effective_batch(rows, {0, 1});
  EXPECT_EQ(batch.supervised_tokens, 2);
  for (const bool packing : {false, true}) {
    CollateOptions options{.encoder_decoder = false};
    options.packing = packing;
    const MicroBatch micro = collate(batch, {0, 1}, options, at::kCPU);
    const auto* at_row = micro.supervised_rows.const_data_ptr<int64_t>();
    const auto* label = micro.supervised_labels.const_data_ptr<int64_t>();
    EXPECT_EQ(at_row[0], 2);
    EXPECT_EQ(at_row[1], packing ? 4 : 3 + 1);
    EXPECT_EQ(label[0], 1);
    EXPECT_EQ(label[1], 0);
  }
}

TEST_F(LabelsData, AnEncoderDecoderReadsTheTextTwice) {
  const Dataset rows = data(kThree, true);
  EXPECT_EQ(rows.sample(1).input_ids, (Ids{6, 1}));
  EXPECT_EQ(rows.sample(1).labels, (Ids{kNo, 0}));
  const EffectiveBatch batch = load_effective_batch(rows, {1});
  CollateOptions options;
  options.targets_are_sources = true;
  options.decoder_start_id = 9;
  const MicroBatch micro = collate(batch, {0}, options, at::kCPU);
  EXPECT_EQ(micro.decoder_input_ids.const_data_ptr<int64_t>()[0], 9);
  EXPECT_EQ(micro.decoder_input_ids.const_data_ptr<int64_t>()[1], 6);
  EXPECT_EQ(*micro.supervised_rows.const_data_ptr<int64_t>(), 1);
}

TEST_F(LabelsData, WholeNumbersAreTheOutputsThatTheyName) {
  const Dataset rows =
      data("{\"sentence\": \"one\", \"label\": 3}\n{\"sentence\": \"two\", \"label\": 0}", false);
  EXPECT_EQ(rows.labels().classes, (std::vector<std::string>{"0", "1", "2", "3"}));
  EXPECT_EQ(rows.sample(0).labels.back(), 3);
  const Dataset flags =
      data("{\"text\": \"one\", \"label\": true}\n{\"text\": \"two\", \"label\": false}", false);
  EXPECT_EQ(flags.labels().classes, (std::vector<std::string>{"false", "true"}));
}

// Each of them is the class of its row, whatever number it looks like.
TEST_F(LabelsData, NumbersInAnotherFormAreNames) {
  for (const auto& [first, second] : std::vector<std::pair<std::string, std::string>>{
           {"01", "10"}, {"1.0", "2.0"}, {"-0", "1"}, {"+1", "2"}, {"02", "3"}, {"0", "one"}}) {
    const Dataset rows = data(concat("{\"text\": \"one\", \"label\": \"", second,
                                     "\"}\n{\"text\": \"two\", \"label\": \"", first, "\"}"),
                              false);
    EXPECT_EQ(rows.labels().classes, (std::vector<std::string>{first, second}));
    EXPECT_EQ(rows.sample(0).labels.back(), 1) << second;
    EXPECT_EQ(rows.sample(1).labels.back(), 0) << first;
  }
  const Dataset table = open(write("table.csv", "text,label\none,07\ntwo,12\n"), false);
  EXPECT_EQ(table.labels().classes, (std::vector<std::string>{"07", "12"}));
}

TEST_F(LabelsData, NumbersBelowZeroAreInTheirOrder) {
  const Dataset rows = data(
      "{\"text\": \"one\", \"label\": 10}\n{\"text\": \"one\", \"label\": -2}\n"
      "{\"text\": \"one\", \"label\": -10}",
      false);
  EXPECT_EQ(rows.labels().classes, (std::vector<std::string>{"-10", "-2", "10"}));
}

// Classes weigh what they weigh in training. All are known, so that an evaluation has no other ones.
TEST_F(LabelsData, RowsThatAreHeldOutAreNotCounted) {
  std::string rows;
  for (int row = 0; row < 2000; row++)
    rows += concat("{\"text\": \"", row, "\", \"label\": \"", row % 4 == 0 ? "rare" : "usual", "\"}\n");
  config_.data.train = {write("data.jsonl", rows)};
  config_.data.eval.held_out = 0.25;
  config_.objective.balance_classes = true;
  for (const int64_t workers : {1, 3}) {
    config_.training.num_workers = workers;
    const Dataset train = Dataset::open_train(config_, decoder_, false);
    const auto& counts = train.report().labels;
    EXPECT_EQ(counts.at(0).second + counts.at(1).second, train.size());
    const auto rare =
        static_cast<float>(static_cast<double>(train.size()) / static_cast<double>(2 * counts.at(0).second));
    int64_t row = 0;
    while (train.sample(row).labels.back() != 0) row++;
    EXPECT_EQ(train.sample(row).weights.back(), rare);
    const Dataset eval = Dataset::open_eval(config_, decoder_, false);
    EXPECT_EQ(eval.report().labels.at(0).second + eval.report().labels.at(1).second, eval.size());
  }
}

TEST_F(LabelsData, AClassOfRowsThatAreHeldOutIsKnown) {
  std::string rows;
  for (int row = 0; row < 40; row++)
    rows += concat("{\"text\": \"", row, "\", \"label\": \"class ", row % 20, "\"}\n");
  config_.data.train = {write("data.jsonl", rows)};
  config_.data.eval.held_out = 0.5;
  const Dataset train = Dataset::open_train(config_, decoder_, false);
  EXPECT_EQ(train.labels().classes.size(), 20u);
  config_.data.labels = train.labels();
  EXPECT_GT(Dataset::open_eval(config_, decoder_, false).size(), 0);
}

TEST_F(LabelsData, WeightsOfClassesAreThoseOfTheirRows) {
  config_.objective.class_weights = {{"sour", 4.0}};
  config_.objective.balance_classes = true;
  const Dataset rows = data(kThree, false);
  EXPECT_EQ(rows.sample(0).weights.back(), 3.0f / (2 * 2) * 4);
  EXPECT_EQ(rows.sample(1).weights.back(), 3.0f / (2 * 1));
}

TEST_F(LabelsData, TwoTextsAreOne) {
  const Dataset rows = data(
      "{\"premise\": \"one\", \"hypothesis\": \"two\", \"label\": \"a\"}\n"
      "{\"premise\": \"two\", \"hypothesis\": \"two\", \"label\": \"b\"}",
      false);
  EXPECT_EQ(rows.sample(0).input_ids, (Ids{3, 4, 5}));
  EXPECT_EQ(rows.report().input_field, "{premise}\n{hypothesis}");
}

TEST_F(LabelsData, ANumberIsKeptAsItsBits) {
  config_.objective.name = "regression";
  const Dataset rows =
      data("{\"text\": \"one\", \"score\": -0.5}\n{\"text\": \"two\", \"score\": \"2\"}", false);
  EXPECT_EQ(std::bit_cast<float>(rows.sample(0).labels.back()), -0.5f);
  EXPECT_EQ(std::bit_cast<float>(rows.sample(1).labels.back()), 2.0f);
}

// Transformers takes the last token that is no padding.
TEST_F(LabelsData, PaddingAtTheEndOfATextIsLeftOut) {
  const Dataset rows =
      data("{\"text\": \"one <pad>\", \"label\": 0}\n{\"text\": \"two\", \"label\": 1}", false);
  EXPECT_EQ(rows.sample(0).input_ids, (Ids{3, 4}));
}

TEST_F(LabelsData, AnAnswerIsScoredAsOneTextWithItsPrompt) {
  config_.objective.name = "reward";
  const Dataset rows = data(R"({"prompt": "one ", "chosen": "two three", "rejected": "four"})", false);
  EXPECT_EQ(rows.sides(), 2);
  EXPECT_EQ(rows.sample(0, 0).input_ids, (Ids{3, 4, 5, 6, 1}));
  EXPECT_EQ(rows.sample(0, 0).labels, (Ids{kNo, kNo, kNo, kNo, kNo, 0}));
  EXPECT_EQ(rows.sample(0, 1).labels, (Ids{kNo, kNo, kNo, kNo, 0}));
}

}  // namespace
}  // namespace trainer
