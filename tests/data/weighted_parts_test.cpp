// Weights of what is smaller than a message, and of a whole source: parts of contents, rows of segments,
// entries of data.train.
#include "data/fixture.h"

namespace trainer {
namespace {

using Floats = std::vector<float>;

class WeightedParts : public DataTest {
 protected:
  WeightedParts() {
    config_.data.chat_template =
        write("words.jinja",
              "<s> {% for m in messages %}{{ m.role[0] ~ ' ' ~ m.content ~ ' </s> ' }}{% endfor %}"
              "{% if add_generation_prompt %}a{% endif %}");
  }
};

constexpr const char* kParts =
    R"({"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": [)"
    R"({"type": "text", "text": "two three "}, {"type": "text", "text": "four ", "weight": 0.25}, )"
    R"({"type": "text", "text": "five", "weight": 0}]}]})"
    "\n";

TEST_F(WeightedParts, OfAContentAreThoseOfTheirTokens) {
  const Sample sample = data(kParts, false).sample(0);
  EXPECT_EQ(sample.input_ids, (Ids{3, 120, 4, 1, 100, 5, 6, 7, 8, 1}));
  EXPECT_EQ(sample.labels, (Ids{kIgnore, kIgnore, kIgnore, kIgnore, kIgnore, 5, 6, 7, kIgnore, 1}));
  EXPECT_EQ(Floats(sample.weights.begin() + 5, sample.weights.end()), (Floats{1, 1, 0.25, 0, 1}))
      << "the end of the answer counts as the message";
}

TEST_F(WeightedParts, AreMultipliedByThoseOfMessageAndRow) {
  config_.data.loss_weight = "worth";
  std::string row = kParts;
  row.insert(row.find("\"assistant\"") + 11, ", \"weight\": 2");
  row.insert(1, "\"worth\": 0.5, ");
  const Sample sample = data(row, false).sample(0);
  EXPECT_EQ(Floats(sample.weights.begin() + 5, sample.weights.end()), (Floats{1, 1, 0.25, 0, 1}));
}

TEST_F(WeightedParts, AreLeftOutOfEverythingToo) {
  config_.data.loss_on = LossOn::everything;
  const Sample sample = data(kParts, false).sample(0);
  EXPECT_EQ(sample.labels, (Ids{3, 120, 4, 1, 100, 5, 6, 7, kIgnore, 1}));
  EXPECT_EQ(sample.weights[7], 0.25F);
}

TEST_F(WeightedParts, OfAnEncoderDecodersTargetAreLabelsWithTheirWeights) {
  const Sample sample = data(kParts, true).sample(0);
  EXPECT_EQ(sample.labels, (Ids{5, 6, 7, 8, 1})) << "the decoder reads what is not learned";
  EXPECT_EQ(sample.weights, (Floats{1, 1, 0.25, 0, 1}));
  config_.data.max_target_length = 4;
  EXPECT_EQ(data(kParts, true).sample(0).labels, (Ids{5, 6, 7, 1}));
  EXPECT_EQ(data(kParts, true).sample(0).weights, (Floats{1, 1, 0.25, 1}));
}

TEST_F(WeightedParts, NeedATemplateThatWritesThemAsTheyAre) {
  config_.data.chat_template = write("upper.jinja",
                                     "{% for m in messages %}{{ m.role[0] ~ ' ' ~ m.content | replace('two', "
                                     "'six') ~ ' </s> ' }}{% endfor %}");
  EXPECT_TRUE(
      has(error(kParts, false), "message 2: its parts have weights, and the chat template does not write"));
}

TEST_F(WeightedParts, ABadWeightOfAPartIsNamed) {
  std::string row = kParts;
  row.replace(row.find("0.25"), 4, "-2.5");
  EXPECT_TRUE(has(error(row, false), "message 2 (assistant): part 2 of \"content\": \"weight\" is -2.5"));
}

constexpr const char* kSegments =
    R"({"segments": [{"text": "<s> one two", "label": false}, {"text": "three", "label": true}, )"
    R"({"text": "four", "weight": 0.5}, {"text": "five </s>", "weight": 0}]})"
    "\n";

TEST_F(WeightedParts, SegmentsAreJoinedAndNothingIsAdded) {
  const Dataset segments = data(kSegments, false);
  const Sample sample = segments.sample(0);
  EXPECT_EQ(sample.input_ids, (Ids{3, 4, 5, 6, 7, 8, 1}));
  EXPECT_EQ(sample.labels, (Ids{kIgnore, kIgnore, kIgnore, 6, 7, kIgnore, kIgnore}));
  EXPECT_EQ(Floats(sample.weights.begin() + 3, sample.weights.begin() + 5), (Floats{1, 0.5}));
  EXPECT_EQ(segments.prompt(0), (Ids{3, 4, 5}));
  EXPECT_EQ(segments.texts(0).input, "<s> one two");
  EXPECT_EQ(segments.report().supervised_tokens, 2);
  config_.data.max_length = 4;
  config_.data.truncation_side = TruncationSide::left;
  EXPECT_EQ(data(kSegments, false).sample(0).input_ids, (Ids{6, 7, 8, 1}));
}

TEST_F(WeightedParts, SegmentsWithLabelsAloneNeedNoWeights) {
  const Sample sample =
      data(
          R"({"segments": [{"text": "one", "label": true}, {"text": "two", "label": false}, {"text": "three", "label": true}]})"
          "\n",
          false)
          .sample(0);
  EXPECT_EQ(sample.labels, (Ids{4, kIgnore, 6}));
  EXPECT_TRUE(sample.weights.empty());
}

TEST_F(WeightedParts, BadSegmentsAreNamed) {
  const auto refused = [&](const char* segment) {
    return error(concat(R"({"segments": [{"text": "one", "label": true}, )", segment, "]}\n"), false);
  };
  EXPECT_TRUE(has(refused(R"({"text": "two"})"), "data.jsonl:1: segment 2 has neither \"label\""));
  EXPECT_TRUE(
      has(refused(R"({"text": "two", "label": 1})"), "segment 2: \"label\" is 1; it must be true or false"));
  EXPECT_TRUE(
      has(refused(R"({"text": "two", "weight": -1})"), "segment 2: \"weight\" is -1; it must be a number"));
  EXPECT_TRUE(has(refused(R"({"text": "two", "weight": 1, "label": true})"), "segment 2 has both"));
  EXPECT_TRUE(has(refused(R"({"label": true})"), "segment 2 has no \"text\""));
  EXPECT_TRUE(has(error<ConfigError>(kSegments, true), "rows of \"segments\" are for decoders"));
}

TEST_F(WeightedParts, OfASourceMultiplyThoseOfItsRows) {
  config_.data.loss_weight = "worth";
  const std::string row = R"({"input": "one", "target": "two", "worth": 4})"
                          "\n";
  const std::vector<DataSource> sources{{write("a.jsonl", row)}, {write("b.jsonl", row), 1, 0.25}};
  const Dataset both = Dataset::open(sources, config_, decoder_, false);
  ASSERT_EQ(both.size(), 2);
  EXPECT_EQ(both.sample(0).weights, (Floats{4, 4, 4, 4}));
  EXPECT_EQ(both.sample(1).weights, (Floats{1, 1, 1, 1}));
  EXPECT_EQ(both.sets()[1].weight, 1) << "it is used as often";
}

}  // namespace
}  // namespace trainer
