// What other programs write on a message to say whether it is learned.
#include <gtest/gtest.h>

#include "trainer/base/error.h"
#include "trainer/text/conversation.h"

#include "support/error_message.h"

namespace trainer {
namespace {

using test::error_message;

Conversation row_of(const char* row) {
  const auto json = nlohmann::ordered_json::parse(row);
  return read_conversation(
      json, json.contains("messages") ? ConversationForm::messages : ConversationForm::conversations);
}

constexpr const char* kMarked = R"({"messages": [{"role": "user", "content": "q"},
    {"role": "assistant", "content": "a", MARK}]})";

Conversation with_mark(std::string mark, std::string role = "assistant") {
  std::string row = kMarked;
  row.replace(row.find("MARK"), 4, mark);
  row.replace(row.find("assistant"), 9, role);
  return row_of(row.c_str());
}

TEST(Marks, MarksOfOtherProgramsAreWeightsOfTheirMessages) {
  for (const char* mark : {R"("loss": false)", R"("train": false)", R"("training": false)",
                           R"("trainable": 0)", R"("loss_mask": 0)", R"("masked": true)",
                           R"("loss_weight": 0)", R"("loss_mask": 0.0)", R"("train": false, "loss": null)"}) {
    const Conversation marked = with_mark(mark);
    EXPECT_EQ(marked.weights, (std::vector<float>{1, 0})) << mark;
    EXPECT_EQ(marked.messages[1].size(), 2U) << mark << ": the template does not see it";
    EXPECT_TRUE(marked.unknown_marks.empty()) << mark;
  }
  for (const char* mark : {R"("loss": true)", R"("train": null)", R"("loss_mask": 1)", R"("masked": false)"})
    EXPECT_EQ(with_mark(mark).weights, (std::vector<float>{1, 1})) << mark;
  EXPECT_EQ(with_mark(R"("loss_weight": 0.5, "train": true)").weights, (std::vector<float>{1, 0.5}));
  EXPECT_EQ(row_of(R"({"conversations": [{"from": "human", "value": "q", "train": false},
                                      {"from": "gpt", "value": "a", "train": false}]})")
                .weights,
            (std::vector<float>{0, 0}));
}

TEST(Marks, OfPartsAreWeightsOfTheirText) {
  const Conversation marked = row_of(R"({"messages": [{"role": "assistant", "content": [
      {"type": "text", "text": "ab"}, {"type": "text", "text": "c", "train": false},
      {"type": "text", "text": "de", "weight": 0.5}]}, {"role": "assistant", "content": "x"}]})");
  ASSERT_EQ(marked.part_weights.size(), 2U);
  EXPECT_TRUE(marked.part_weights[1].empty());
  for (const auto& [place, weight] :
       std::vector<std::pair<size_t, float>>{{0, 1}, {1, 1}, {2, 0}, {3, 0.5}, {4, 0.5}, {5, 1}})
    EXPECT_EQ(weight_at(marked.part_weights[0], place), weight) << place;
  EXPECT_EQ(marked.messages[0]["content"][1].size(), 2U) << "the template does not see it";
}

TEST(Marks, MarksThatContradictEachOtherAreRefused) {
  const auto refused = [](const char* mark) { return error_message<DataError>([&] { with_mark(mark); }); };
  EXPECT_EQ(refused(R"("loss": false, "train": true)"),
            "message 2 (assistant): \"loss\" and \"train\" contradict each other");
  EXPECT_EQ(refused(R"("weight": 0, "train": true)"),
            "message 2 (assistant): \"weight\" and \"train\" contradict each other");
  EXPECT_EQ(refused(R"("weight": 2, "loss_weight": 3)"),
            "message 2 (assistant): \"weight\" and \"loss_weight\" contradict each other");
}

TEST(Marks, OtherMarksAreNamed) {
  const auto refused = [](const Conversation& conversation, LossOn loss_on = LossOn::all_turns) {
    return error_message<DataError>([&] { refuse_unknown_marks(conversation, nullptr, loss_on); });
  };
  const std::string remedy =
      "; write \"train\": true or false for what is learned, or pass over such marks: "
      "data.unknown_marks=ignore";
  EXPECT_EQ(
      refused(with_mark(R"("good": false)")),
      "message 2 (assistant): \"good\" is false, which may say what is learned, and is not known" + remedy);
  EXPECT_EQ(refused(with_mark(R"("loss": 0.7)")),
            "message 2 (assistant): \"loss\" is 0.7; known are true and false" + remedy);
  for (const char* mark : {R"("train_detail": [{"begin_offset": 0, "end_offset": 1, "train": false}])",
                           R"("labelMask": 0)", R"("mask": [0, 1])", R"("good": true)"})
    EXPECT_NE(refused(with_mark(mark)), "") << mark;
  EXPECT_EQ(refused(row_of(R"({"messages": [{"role": "assistant",
              "content": [{"type": "text", "text": "a", "good": false}]}]})")),
            "message 1 (assistant): part 1 of \"content\": \"good\" is false, which may say what is learned, "
            "and is not known" +
                remedy);
  for (const char* mark : {R"("name": "Bo")", R"("good": null)", R"("constraints": [1])", R"("turn": 3)"})
    EXPECT_TRUE(with_mark(mark).unknown_marks.empty()) << mark;
}

TEST(Marks, AQuestionThatIsToBeLearnedIsNamed) {
  const Conversation asks = with_mark(R"("train": true)", "user");
  EXPECT_EQ(
      error_message<DataError>([&] { refuse_unknown_marks(asks, nullptr, LossOn::all_turns); }),
      "message 2 (user): \"train\" is true, and only answers of the assistant are learned; write "
      "\"train\": true or false for what is learned, or pass over such marks: data.unknown_marks=ignore");
  EXPECT_NO_THROW(refuse_unknown_marks(asks, nullptr, LossOn::everything));
}

TEST(Marks, WhatTheTemplateReadsIsNoMark) {
  const ChatTemplate reads({{"default",
                             {"{% for m in messages %}{{ m.content }}{% if m.prefix %}…{% endif %}"
                              "{% if m['last'] %}.{% endif %}{% endfor %}",
                              "t.jinja"}}},
                           {});
  EXPECT_NO_THROW(
      refuse_unknown_marks(with_mark(R"("prefix": true, "last": true)"), &reads, LossOn::all_turns));
  EXPECT_THROW(refuse_unknown_marks(with_mark(R"("pre": true)"), &reads, LossOn::all_turns), DataError);
}

}  // namespace
}  // namespace trainer
