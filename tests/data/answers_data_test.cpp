// Rows of preferences and of feedback as training data, in the forms in which data sets write them.

#include "trainer/data/batching.h"

#include "data/fixture.h"

namespace trainer {
namespace {

constexpr int32_t kNo = kIgnore;  // no label

class AnswersData : public DataTest {
 protected:
  AnswersData() { config_.objective.name = "dpo"; }

  // "<s> u one </s> a two </s> "
  void use_template() {
    config_.data.chat_template =
        write("words.jinja",
              "<s> {% for m in messages %}{{ m.role[0] ~ ' ' ~ m.content ~ ' </s> ' }}{% endfor %}"
              "{% if add_generation_prompt %}a{% endif %}");
  }
};

const std::string kOne = R"({"prompt": "one", "chosen": "two three", "rejected": "four"})";

TEST_F(AnswersData, ATextIsTwoSamplesThatBeginWithTheSameTokens) {
  const Dataset rows = data(kOne, false);
  EXPECT_EQ(rows.size(), 1);
  EXPECT_EQ(rows.sides(), 2);
  EXPECT_EQ(rows.report().kind, DataKind::preference);
  EXPECT_EQ(rows.report().samples, 2);
  EXPECT_EQ(rows.sample(0, 0).input_ids, (Ids{3, 4, 5, 6, 1}));
  EXPECT_EQ(rows.sample(0, 0).labels, (Ids{kNo, kNo, 5, 6, 1}));
  EXPECT_EQ(rows.sample(0, 1).input_ids, (Ids{3, 4, 7, 1}));
  EXPECT_EQ(rows.sample(0, 1).labels, (Ids{kNo, kNo, 7, 1}));
}

TEST_F(AnswersData, AnEncoderDecoderReadsThePromptTwice) {
  const Dataset rows = data(kOne, true);
  EXPECT_EQ(rows.sample(0, 0).input_ids, rows.sample(0, 1).input_ids);
  EXPECT_EQ(rows.sample(0, 0).labels, (Ids{5, 6, 1}));
  EXPECT_EQ(rows.sample(0, 1).labels, (Ids{7, 1}));
}

TEST_F(AnswersData, TheSidesOfAStepLieOneAfterTheOther) {
  const Dataset rows = data(kOne + "\n" + R"({"prompt": "five", "chosen": "six", "rejected": "one"})", true);
  const EffectiveBatch batch = load_effective_batch(rows, {1, 0});
  EXPECT_EQ(batch.rows(), 2);
  ASSERT_EQ(batch.samples.size(), 4u);
  EXPECT_EQ(batch.samples[0].labels, (Ids{9, 1}));
  EXPECT_EQ(batch.samples[1].labels, (Ids{5, 6, 1}));
  EXPECT_EQ(batch.samples[2].labels, (Ids{4, 1}));
  EXPECT_EQ(batch.samples[3].labels, (Ids{7, 1}));
  EXPECT_EQ(batch.supervised_tokens, 9);
}

// All of these say: one, then two rather than four.
TEST_F(AnswersData, EveryFormOfAConversationIsTheSame) {
  use_template();
  const std::string user = R"({"role": "user", "content": "one"})",
                    good = R"({"role": "assistant", "content": "two"})",
                    bad = R"({"role": "assistant", "content": "four"})", gpt = R"({"from": "gpt", "value": )";
  const std::vector<std::string> forms{
      // TRL, with and without a prompt
      concat(R"({"prompt": [)", user, R"(], "chosen": [)", good, R"(], "rejected": [)", bad, "]}"),
      concat(R"({"chosen": [)", user, ",", good, R"(], "rejected": [)", user, ",", bad, "]}"),
      // UltraFeedback as it is published
      concat(R"({"prompt": "one", "prompt_id": "x", "chosen": [)", user, ",", good, R"(], "rejected": [)",
             user, ",", bad, R"(], "messages": [)", user, ",", good,
             R"(], "score_chosen": 8.0, "score_rejected": 6.5})"),
      // axolotl
      concat(R"({"messages": [)", user, R"(], "chosen": )", good, R"(, "rejected": )", bad, "}"),
      R"({"system": "", "question": "one", "chosen": "two", "rejected": "four"})",
      R"({"instruction": "one", "chosen_response": "two", "rejected_response": "four"})",
      R"({"input": "one", "chosen": "two", "rejected": "four"})",
      // LLaMA-Factory
      R"({"instruction": "one", "input": "", "chosen": "two", "rejected": "four"})",
      concat(R"({"conversations": [{"from": "human", "value": "one"}], "chosen": )", gpt,
             R"("two"}, "rejected": )", gpt, R"("four"}})"),
  };
  for (const std::string& form : forms) {
    const Dataset rows = data(form, false);
    EXPECT_EQ(rows.sample(0, 0).input_ids, (Ids{3, 120, 4, 1, 100, 5, 1})) << form;
    EXPECT_EQ(rows.sample(0, 0).labels, (Ids{kNo, kNo, kNo, kNo, kNo, 5, 1})) << form;
    EXPECT_EQ(rows.sample(0, 1).input_ids, (Ids{3, 120, 4, 1, 100, 7, 1})) << form;
    EXPECT_EQ(rows.sample(0, 1).labels, (Ids{kNo, kNo, kNo, kNo, kNo, 7, 1})) << form;
    EXPECT_EQ(rows.texts(0).target, "two") << form;
  }
}

TEST_F(AnswersData, OnlyTheAnswersAfterTheSharedTurnsCount) {
  use_template();
  const std::string turns = R"({"role": "user", "content": "one"}, {"role": "assistant", "content": "two"},
      {"role": "user", "content": "three"}, )";
  std::string row =
      concat(R"({"chosen": [)", turns, R"({"role": "assistant", "content": "four"}], "rejected": [)", turns,
             R"({"role": "assistant", "content": "five"}]})");
  std::erase(row, '\n');
  EXPECT_EQ(data(row, false).sample(0, 1).labels,
            (Ids{kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, kNo, 8, 1}));
}

TEST_F(AnswersData, ThePromptOfTextsIsWhatBothBeginWith) {
  const std::string said = "\\n\\nHuman: one\\n\\nAssistant:";
  const Dataset hh =
      data(concat(R"({"chosen": ")", said, R"( two two", "rejected": ")", said, R"( two four"})"), false);
  EXPECT_EQ(hh.texts(0).input, "\n\nHuman: one\n\nAssistant:") << "the answers may begin alike, too";
  EXPECT_EQ(hh.texts(0).target, " two two");
  const Dataset others = data(R"({"chosen": "one two three", "rejected": "one two four"})", false);
  EXPECT_EQ(others.texts(0).input, "one two");
  EXPECT_EQ(others.sample(0, 1).input_ids, (Ids{3, 4, 5, 7, 1}));
}

TEST_F(AnswersData, RowsThatCannotBeUsedAreNamed) {
  const auto says = [&](const char* row, const char* words) {
    EXPECT_TRUE(has(error(concat(kOne, "\n", row), false), concat("data.jsonl:2: ", words))) << row;
  };
  says(R"({"prompt": "one", "chosen": "two"})", "field \"rejected\" is missing or null");
  says(R"({"prompt": "one", "chosen": null, "rejected": "two"})", "field \"chosen\" is missing or null");
  says(R"({"prompt": "one", "chosen": "two", "rejected": "  "})", "\"rejected\" is empty");
  says(R"({"prompt": "one", "chosen": "two", "rejected": 4})", "field \"rejected\" is number");
  says(R"({"chosen": "one two", "rejected": "three"})", "the prompts of the two sides differ");
  says(R"({"prompt": "one", "chosen": "two", "rejected": [{"role": "assistant", "content": "x"}]})",
       "\"chosen\" and \"rejected\" are a text and a list of messages");
  says(R"({"input": "one", "target": "two"})", "rows of preferences need \"chosen\" and \"rejected\"");
  says(R"({"prompt": [{"role": "user", "content": "one"}], "chosen": "two", "rejected": "four"})",
       "is messages, where the first row is text");
}

TEST_F(AnswersData, PromptsThatDifferAreNamed) {
  use_template();
  const char* row =
      R"({"chosen": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}],
      "rejected": [{"role": "user", "content": "three"}, {"role": "assistant", "content": "four"}]})";
  std::string line = row;
  std::erase(line, '\n');
  EXPECT_TRUE(has(error(line, false), "the prompts of the two sides differ: message 1"));
}

TEST_F(AnswersData, EqualSidesAreReported) {
  const Dataset rows = data(kOne + "\n" + R"({"prompt": "one", "chosen": "two", "rejected": "two"})", false);
  EXPECT_EQ(rows.report().equal_sides.count, 1);
  EXPECT_EQ(rows.report().equal_sides.first.front().line, 2);
  EXPECT_TRUE(
      has(join(rows.report().lines(), "\n"), "the chosen answer is the rejected one in 1 (50.0 %) row"));
}

TEST_F(AnswersData, TruncationKeepsTheSamePromptOnBothSides) {
  config_.data.max_length = 5;
  config_.data.truncation_side = TruncationSide::left;
  const Dataset rows =
      data(R"({"prompt": "one two three", "chosen": "four five", "rejected": "six"})", false);
  EXPECT_EQ(rows.sample(0, 0).input_ids, (Ids{5, 6, 7, 8, 1}));
  EXPECT_EQ(rows.sample(0, 1).input_ids, (Ids{5, 6, 9, 1}));
  EXPECT_EQ(rows.report().truncated.count, 1);
}

TEST_F(AnswersData, APairIsLeftOutAsAWhole) {
  config_.data.max_length = 4;
  const std::string rows =
      kOne + "\n" + R"({"prompt": "one two three four", "chosen": "five", "rejected": "six"})";
  const Dataset truncated = data(rows, false);
  EXPECT_EQ(truncated.size(), 1) << "of the second row the limit leaves no answer";
  EXPECT_EQ(truncated.sample(0, 0).labels, (Ids{kNo, kNo, 5, 6}));
  EXPECT_EQ(truncated.report().dropped_rows, 1);
  config_.data.long_samples = LongSamples::drop;
  const Dataset dropped =
      data(kOne + "\n" + R"({"prompt": "one", "chosen": "five", "rejected": "six"})", false);
  EXPECT_EQ(dropped.size(), 1);
  EXPECT_EQ(dropped.report().dropped_rows, 1)
      << "the rejected answer of the first row fits, the chosen one does not";
  EXPECT_EQ(dropped.sample(0, 0).labels, (Ids{kNo, kNo, 8, 1}));
}

TEST_F(AnswersData, WithEverythingThePromptCountsInTheChosenAnswersOwnLossAlone) {
  config_.objective.name = "orpo";
  config_.data.loss_on = LossOn::everything;
  const Dataset rows = data(kOne, false);
  const Sample chosen = rows.sample(0, 0);
  EXPECT_EQ(chosen.labels, chosen.input_ids);
  EXPECT_EQ(chosen.weights, (std::vector<float>{0, 0, 1, 1, 1}));
  EXPECT_EQ(rows.sample(0, 1).labels, (Ids{kNo, kNo, 7, 1}));
}

TEST_F(AnswersData, SoManySamplesAreSoManyRows) {
  config_.data.max_samples = 2;
  EXPECT_EQ(data(kOne + "\n" + kOne + "\n" + kOne, false).size(), 2);
}

class Feedback : public AnswersData {
 protected:
  Feedback() { config_.objective.name = "kto"; }
};

TEST_F(Feedback, AnAnswerIsJudged) {
  const Dataset rows = data(R"({"prompt": "one", "completion": "two", "label": true}
{"prompt": "three", "completion": "four", "label": false})",
                            false);
  EXPECT_EQ(rows.report().kind, DataKind::feedback);
  EXPECT_EQ(rows.sides(), 1);
  EXPECT_TRUE(rows.sample(0).desirable);
  EXPECT_FALSE(rows.sample(1).desirable);
  EXPECT_EQ(rows.sample(1).labels, (Ids{kNo, kNo, 7, 1}));
  EXPECT_EQ(rows.report().undesirable, 1);
}

TEST_F(Feedback, EveryFormIsTheSame) {
  use_template();
  const std::string other = R"({"instruction": "one", "output": "two", "label": )";
  for (
      const char* form :
      {R"({"prompt": [{"role": "user", "content": "one"}], "completion": [{"role": "assistant", "content": "four"}], "label": false})",
       R"({"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "four"}], "label": 0})",
       R"({"conversations": [{"from": "human", "value": "one"}, {"from": "gpt", "value": "four"}], "kto_tag": false})",
       R"({"instruction": "one", "input": "", "output": "four", "kto_tag": "false"})",
       R"({"question": "one", "completion": "four", "label": false})"}) {
    const Dataset rows = data(concat(other, "true}\n", form), false);
    EXPECT_EQ(rows.sample(1).input_ids, (Ids{3, 120, 4, 1, 100, 7, 1})) << form;
    EXPECT_EQ(rows.sample(1).labels, (Ids{kNo, kNo, kNo, kNo, kNo, 7, 1})) << form;
    EXPECT_FALSE(rows.sample(1).desirable) << form;
  }
}

TEST_F(Feedback, BadJudgementsAreNamed) {
  const std::string good = "{\"prompt\": \"one\", \"completion\": \"two\", \"label\": true}\n";
  EXPECT_TRUE(has(error(good + R"({"prompt": "one", "completion": "two", "label": "maybe"})", false),
                  "data.jsonl:2: field \"label\" is \"maybe\"; it must be true or false"));
  EXPECT_TRUE(has(error(good + R"({"prompt": "one", "completion": "two"})", false),
                  "data.jsonl:2: field \"label\" (or \"kto_tag\") is missing"));
  EXPECT_TRUE(has(error(good + good, false), "all 2 answers are judged good"));
}

}  // namespace
}  // namespace trainer
