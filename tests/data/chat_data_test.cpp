// Conversations as training data.

#include "data/fixture.h"

namespace trainer {
namespace {

constexpr int32_t X = kIgnore;

class ChatData : public DataTest {
 protected:
  // "<s> u one </s> a two </s> "
  ChatData() {
    config_.data.chat_template =
        write("words.jinja",
              "<s> {% for m in messages %}{{ m.role[0] ~ ' ' ~ m.content ~ ' </s> ' }}{% endfor %}"
              "{% if add_generation_prompt %}a{% endif %}");
  }
};

constexpr const char* kTwoTurns =
    R"({"messages": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"}, {"role": "assistant", "content": "four"}]})";
std::string line(std::string row) {
  std::erase(row, '\n');
  return row + "\n";
}

TEST_F(ChatData, AnswersAndTheirEndsAreLearned) {
  const Dataset chat = data(line(kTwoTurns), false);
  EXPECT_EQ(chat.report().kind, DataKind::chat);
  EXPECT_EQ(chat.sample(0).input_ids, (Ids{3, 120, 4, 1, 100, 5, 1, 120, 6, 1, 100, 7, 1}));
  EXPECT_EQ(chat.sample(0).labels, (Ids{X, X, X, X, X, 5, 1, X, X, X, X, 7, 1}));
  EXPECT_EQ(chat.report().supervised_tokens, 4);
  EXPECT_EQ(chat.report().input.tokens, 9);
}

TEST_F(ChatData, TheLastTurnAloneOrEverything) {
  config_.data.loss_on = LossOn::last_turn;
  EXPECT_EQ(data(line(kTwoTurns), false).sample(0).labels, (Ids{X, X, X, X, X, X, X, X, X, X, X, 7, 1}));
  config_.data.loss_on = LossOn::everything;
  const Sample sample = data(line(kTwoTurns), false).sample(0);
  EXPECT_EQ(sample.labels, sample.input_ids);
}

TEST_F(ChatData, AnAnswerWithWeight0IsLeftOutOfEverything) {
  config_.data.loss_on = LossOn::everything;
  std::string row = line(kTwoTurns);
  row.insert(row.find("\"two\"") + 5, ", \"weight\": 0");
  const Sample sample = data(row, false).sample(0);
  EXPECT_EQ(sample.input_ids, (Ids{3, 120, 4, 1, 100, 5, 1, 120, 6, 1, 100, 7, 1}));
  EXPECT_EQ(sample.labels, (Ids{3, 120, 4, 1, 100, X, X, 120, 6, 1, 100, 7, 1}));
}

TEST_F(ChatData, MarksThatAreNotKnownAreRefusedUnlessTheyAreIgnored) {
  std::string row = line(kTwoTurns);
  row.insert(row.find("\"two\"") + 5, ", \"good\": false");
  EXPECT_TRUE(has(error(row, false), "data.jsonl:1: message 2 (assistant): \"good\" is false"));
  config_.data.unknown_marks = UnknownMarks::ignore;
  EXPECT_EQ(data(row, false).sample(0).labels, data(line(kTwoTurns), false).sample(0).labels);
  row.replace(row.find("\"good\""), 6, "\"train\"");
  EXPECT_EQ(data(row, false).sample(0).labels, (Ids{X, X, X, X, X, X, X, X, X, X, X, 7, 1}));
}

using Weights = std::vector<float>;

TEST_F(ChatData, AMessagesWeightIsThatOfItsTokens) {
  std::string row = line(kTwoTurns);
  row.insert(row.find("\"two\"") + 5, ", \"weight\": 0.5");
  Sample sample = data(row, false).sample(0);
  EXPECT_EQ(sample.labels, (Ids{X, X, X, X, X, 5, 1, X, X, X, X, 7, 1}));
  EXPECT_EQ(sample.weights, (Weights{0, 0, 0, 0, 0, 0.5, 0.5, 0, 0, 0, 0, 1, 1}));
  config_.data.loss_on = LossOn::everything;
  sample = data(row, false).sample(0);
  EXPECT_EQ(sample.labels, sample.input_ids);
  EXPECT_EQ(sample.weights, (Weights{1, 1, 1, 1, 1, 0.5, 0.5, 1, 1, 1, 1, 1, 1}));
  config_.data.loss_on = LossOn::last_turn;
  EXPECT_TRUE(data(row, false).sample(0).weights.empty()) << "all that is learned has the weight 1";
}

TEST_F(ChatData, TheWeightOfARowMultipliesThoseOfItsMessages) {
  config_.data.loss_weight = "worth";
  std::string row = line(kTwoTurns);
  row.insert(row.find("\"two\"") + 5, ", \"weight\": 0.5");
  row.insert(1, "\"worth\": 3, ");
  EXPECT_EQ(data(row, false).sample(0).weights, (Weights{0, 0, 0, 0, 0, 1.5, 1.5, 0, 0, 0, 0, 3, 3}));
}

// A decoder learns from every answer, an encoder-decoder from the last one.
TEST_F(ChatData, TheWeightOfTheLastAnswerIsThatOfAnEncoderDecodersTarget) {
  std::string row = line(kTwoTurns);
  row.insert(row.find("\"four\"") + 6, ", \"weight\": 0.5");
  const Sample sample = data(row, true).sample(0);
  EXPECT_EQ(sample.labels, (Ids{7, 1}));
  EXPECT_EQ(sample.weights, (Weights{0.5, 0.5}));
}

TEST_F(ChatData, SetsMayHaveDifferentForms) {
  const std::string share =
      R"({"conversations": [{"from": "human", "value": "one"}, {"from": "gpt", "value": "two"}]})";
  const std::string alpaca = R"({"instruction": "one", "output": "two"})";
  const Dataset chat = data(line(kTwoTurns) + line(share) + line(alpaca), false);
  ASSERT_EQ(chat.size(), 3);
  EXPECT_EQ(chat.sample(1).labels, (Ids{X, X, X, X, X, 5, 1}));
  EXPECT_EQ(chat.sample(2).input_ids, chat.sample(1).input_ids);
}

// TRL's conversational prompt-completion: an answer in the prompt is not learned, those of the completion
// are.
constexpr const char* kPromptCompletion =
    R"({"prompt": [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"}], "completion": [{"role": "assistant", "content": "four"}]})";
const Ids kPromptCompletionIds{3, 120, 4, 1, 100, 5, 1, 120, 6, 1, 100, 7, 1};

TEST_F(ChatData, OfPromptAndCompletionAsMessagesTheCompletionIsLearned) {
  const Ids learned{X, X, X, X, X, X, X, X, X, X, X, 7, 1};
  const Dataset lines = data(line(kPromptCompletion) + line(kTwoTurns), false);
  EXPECT_EQ(lines.report().kind, DataKind::chat);
  EXPECT_EQ(lines.report().input_field, "prompt, completion");
  EXPECT_EQ(lines.sample(0).input_ids, kPromptCompletionIds);
  EXPECT_EQ(lines.sample(0).labels, learned);
  EXPECT_EQ(lines.sample(1).labels, (Ids{X, X, X, X, X, 5, 1, X, X, X, X, 7, 1}));
  config_.data.kind = DataKind::chat;
  EXPECT_EQ(data(line(kPromptCompletion), false).sample(0).labels, learned);
  // ShareGPT's names of the same.
  const std::string share = R"({"prompt": [{"from": "human", "value": "one"}, {"from": "gpt", "value": "two"},
    {"from": "human", "value": "three"}], "completion": [{"from": "gpt", "value": "four"}]})";
  EXPECT_EQ(data(line(share), false).sample(0).labels, learned);
  config_.data.loss_on = LossOn::everything;
  EXPECT_EQ(data(line(kPromptCompletion), false).sample(0).labels, kPromptCompletionIds);
}

TEST_F(ChatData, AllAnswersOfACompletionAreLearned) {
  const std::string two = R"({"prompt": [{"role": "user", "content": "one"}],
    "completion": [{"role": "assistant", "content": "two"}, {"role": "user", "content": "three"},
    {"role": "assistant", "content": "four"}]})";
  EXPECT_EQ(data(line(two), false).sample(0).labels, (Ids{X, X, X, X, X, 5, 1, X, X, X, X, 7, 1}));
  EXPECT_EQ(data(line(kPromptCompletion), true).sample(0).labels, (Ids{7, 1})) << "an encoder-decoder";
}

TEST_F(ChatData, PromptAndCompletionAsMessagesAreReadFromOtherFiles) {
  const auto labels = [&](const std::string& path) { return open(path, false).sample(0).labels; };
  const Ids learned{X, X, X, X, X, X, X, X, X, X, X, 7, 1};
  EXPECT_EQ(labels(write("rows.json", concat("[", kPromptCompletion, "]"))), learned);
  const std::string prompt =
      R"("[{""role"": ""user"", ""content"": ""one""}, {""role"": ""assistant"", ""content"": ""two""},
          {""role"": ""user"", ""content"": ""three""}]")";
  const std::string answer = R"("[{""role"": ""assistant"", ""content"": ""four""}]")";
  EXPECT_EQ(labels(write("rows.csv", concat("prompt,completion\n", prompt, ",", answer, "\n"))), learned);
  // Texts stay texts.
  EXPECT_EQ(open(write("texts.csv", "prompt,completion\none,[1]\n"), false).report().kind,
            DataKind::completion);
  EXPECT_TRUE(has(error_of([&] {
                    open(write("repr.csv", "prompt,completion\none,\"[{'role': 'assistant'}]\"\n"), false);
                  }),
                  "repr.csv:2: field \"completion\" is a list of messages in the syntax of Python"));
}

TEST_F(ChatData, MixedFormsOfPromptAndCompletionAreNamed) {
  const std::string text = R"({"prompt": "one", "completion": "two"})";
  const std::string half = R"({"prompt": "one", "completion": [{"role": "assistant", "content": "two"}]})";
  const std::string bare = R"({"prompt": [{"role": "user", "content": "one"}],
    "completion": {"role": "assistant", "content": "two"}})";
  EXPECT_TRUE(has(error(line(half), false),
                  "data.jsonl:1: \"prompt\" is text and \"completion\" is a list of messages: both must be"));
  EXPECT_TRUE(has(error(line(bare), false), "\"completion\" is a message that is in no list"));
  EXPECT_TRUE(has(error(line(kPromptCompletion) + line(text), false),
                  "data.jsonl:2: \"prompt\" is text and \"completion\" is text: both must be lists"));
  EXPECT_TRUE(
      has(error(line(text) + line(kPromptCompletion), false),
          "data.jsonl:2: \"prompt\" and \"completion\" are lists of messages, and rows before have texts"));
  EXPECT_TRUE(has(error(line(text) + line(half), false), "data.jsonl:2: \"prompt\" is text and"));
  EXPECT_TRUE(has(error(line(R"({"prompt": [{"role": "user", "content": "one"}],
                                "completion": [{"role": "user", "content": "two"}]})"),
                        false),
                  "\"completion\" has no message of the assistant"));
  config_.data.kind = DataKind::completion;
  EXPECT_TRUE(
      has(error(line(kPromptCompletion), false), "a conversation: leave data.input and data.target out"));
}

TEST_F(ChatData, SkippedBadRowsDoNotDecideTheKind) {
  const std::string rows = "{\"x\": 1}\n" + line(kTwoTurns);
  config_.data.kind = DataKind::chat;
  EXPECT_TRUE(starts(error(rows, false), "data.jsonl:1: kind chat needs messages"));
  config_.data.bad_rows = BadRows::skip;
  const Dataset chat = data(rows, false);
  EXPECT_EQ(chat.size(), 1);
  EXPECT_EQ(chat.report().malformed.count, 1);
  EXPECT_TRUE(starts(error("{\"x\": 1}\n{\"y\": 1}\n", false), "data.jsonl:1: kind chat needs messages"));
}

TEST_F(ChatData, NumbersBeyond64BitsAreAcceptedInFieldsThatAreNotRead) {
  const std::string row = line(kTwoTurns), big = "{\"id\": 340282366920938463463374607431768211455, ";
  EXPECT_EQ(data(big + row.substr(1), false).sample(0).input_ids, data(row, false).sample(0).input_ids);
  std::string inside = row;
  inside.insert(inside.find("\"two\"") + 5, ", \"n\": 1e400");
  EXPECT_TRUE(
      has(error(inside, false),
          "data.jsonl:1: field \"messages[1].n\" holds the number 1e400, which does not fit in 64 bits; "
          "write a smaller one, or this as a string, in quotes"));
  std::string above = row;
  above.insert(above.find("\"two\"") + 5, ", \"n\": {\"list\": [1, 18446744073709551615]}");
  EXPECT_TRUE(
      has(error(above, false),
          "data.jsonl:1: message 2: \"n.list[1]\" has the number 18446744073709551615, which is beyond "
          "9223372036854775807; a template cannot use it: write it as a string, in quotes"));
}

TEST_F(ChatData, RowsWithVeryManyKeysAreReadInLinearTime) {
  constexpr int kKeys = 200'000;
  std::string keys;
  for (int i = 0; i < kKeys; i++) keys += concat("\"k", i, "\": ", i, ", ");
  const std::string row = line(kTwoTurns);
  std::string many = "{" + keys + keys + row.substr(1);
  many.insert(many.find("\"two\"") + 5, ", " + keys + "\"k7\": 55");
  config_.data.chat_template =
      write("keys.jinja",
            "<s> {% for m in messages %}{{ m.role[0] ~ ' ' ~ m.content }}{% if m.k7 is defined %}"
            "{{ ' ' ~ m.k7 ~ ' ' ~ (m | list).index('k199999') }}{% endif %}{{ ' </s> ' }}{% endfor %}");
  config_.data.loss_on = LossOn::everything;
  EXPECT_EQ(data(many, false).sample(0).input_ids,
            (Ids{3, 120, 4, 1, 100, 5, 55, 200'001, 1, 120, 6, 1, 100, 7, 1}));
}

TEST_F(ChatData, LongConversationsAreTruncatedOnTheRight) {
  config_.data.max_length = 6;
  const Dataset chat = data(line(kTwoTurns), false);
  EXPECT_EQ(chat.sample(0).input_ids, (Ids{3, 120, 4, 1, 100, 5}));
  EXPECT_EQ(chat.sample(0).labels, (Ids{X, X, X, X, X, 5}));
  EXPECT_EQ(chat.report().target.truncated, 1);
}

TEST_F(ChatData, ConversationsWithoutAnAnswerAreCounted) {
  const std::string question = R"({"messages": [{"role": "user", "content": "one"}]})";
  EXPECT_EQ(data(line(kTwoTurns) + line(question), false).report().without_supervision, 1);
  EXPECT_TRUE(
      has(error(line(question), false), "no trainable tokens in any of the 1 samples: no conversation has"));
}

TEST_F(ChatData, RowsThatTeachNothingAreNamedWithTheReason) {
  config_.data.max_length = 8;
  const auto conversation = [](const char* first, const char* answer, const char* more = "") {
    return concat(R"({"messages": [{"role": "user", "content": ")", first,
                  R"("}, {"role": "assistant", "content": ")", answer, '"', more, "}]}\n");
  };
  const Dataset chat = data(conversation("one", "two") + conversation("one", "two", R"(, "weight": 0)") +
                                conversation("1 1 1 1 1 1 1 1 1", "two") + conversation("one", "") +
                                "{\"messages\": [{\"role\": \"user\", \"content\": \"one\"}]}\n",
                            false);
  const DataReport& report = chat.report();
  EXPECT_EQ(report.without_supervision, 3);
  const std::string lines = join(report.lines(), "\n");
  EXPECT_TRUE(has(lines, "no trainable tokens in 1 (20.0 %) row: the assistant says nothing: "));
  EXPECT_TRUE(has(lines, "no trainable tokens in 1 (20.0 %) row: no answer counts (data.loss_on, weight): "));
  EXPECT_TRUE(has(lines, "no trainable tokens in 1 (20.0 %) row: data.max_length cuts it all away: "));
  EXPECT_TRUE(has(lines, "an answer is empty in 1 (20.0 %) row, so only its end is learned: "));
  EXPECT_TRUE(ends(report.nothing.no_answer.first.at(0).origin, "data.jsonl:5"));
  EXPECT_TRUE(ends(report.nothing.not_counted.first.at(0).origin, "data.jsonl:2"));
  EXPECT_TRUE(ends(report.nothing.cut_away.first.at(0).origin, "data.jsonl:3"));
  EXPECT_TRUE(ends(report.empty_answers.first.at(0).origin, "data.jsonl:4"));
  // The length that data.max_length bounds is that of the whole conversation.
  EXPECT_TRUE(has(lines, "conversations: 32 tokens; lengths: mean 7.8, p50 7, p90 15, p99 15, longest 15"));
}

TEST_F(ChatData, ThePromptOfEvaluationEndsBeforeTheLastAnswer) {
  const Dataset chat = data(line(kTwoTurns), false);
  EXPECT_EQ(chat.prompt(0), (Ids{3, 120, 4, 1, 100, 5, 1, 120, 6, 1, 100}));
  EXPECT_EQ(chat.texts(0).target, "four");
}

TEST_F(ChatData, ShareGptAndAlpacaAreRecognized) {
  const char* share_gpt =
      R"({"conversations": [{"from": "human", "value": "one"}, {"from": "gpt", "value": "two"}]})";
  EXPECT_EQ(data(line(share_gpt), false).sample(0).labels, (Ids{X, X, X, X, X, 5, 1}));
  const char* alpaca = R"({"instruction": "one", "input": "three", "output": "two"})";
  EXPECT_EQ(data(line(alpaca), false).sample(0).input_ids, (Ids{3, 120, 4, 6, 1, 100, 5, 1}));
}

TEST_F(ChatData, AnEncoderDecoderReadsTheConversationAndWritesTheLastAnswer) {
  const Dataset chat = data(line(kTwoTurns));
  EXPECT_EQ(chat.sample(0).input_ids, (Ids{3, 120, 4, 1, 100, 5, 1, 120, 6, 1, 100, 1}));
  EXPECT_EQ(chat.sample(0).labels, (Ids{7, 1}));
  EXPECT_EQ(chat.report().kind, DataKind::seq2seq);
}

TEST_F(ChatData, AnEncoderDecoderNeedsNoTemplateForAlpaca) {
  config_.data.chat_template.clear();
  config_.model.path = folder_.string();
  const Dataset alpaca = data(R"({"instruction": "one", "input": "three", "output": "two"})");
  EXPECT_EQ(alpaca.sample(0).input_ids, (Ids{4, 6, 1}));
  EXPECT_EQ(alpaca.sample(0).labels, (Ids{5, 1}));
}

TEST_F(ChatData, WithoutATemplateTheErrorSaysWhatToDo) {
  config_.data.chat_template.clear();
  config_.model.path = folder_.string();
  EXPECT_TRUE(
      has(error<FormatError>(line(kTwoTurns), false),
          "has no chat template, which rows of messages need; give one with data.chat_template: FILE"));
  EXPECT_TRUE(has(error<FormatError>(R"({"instruction": "one", "output": "two"})", false),
                  "data.input: \"{instruction}\\n{input}\" and data.target: output"));
}

TEST_F(ChatData, ConfiguredFieldsOverrideKnownOnes) {
  config_.data.input = "instruction";
  config_.data.target = "output";
  EXPECT_EQ(data(R"({"instruction": "one", "output": "two"})", false).report().kind, DataKind::completion);
  config_.data.kind = DataKind::chat;
  EXPECT_TRUE(starts(error<ConfigError>(line(kTwoTurns), false), "data.input and data.target: kind chat"));
}

TEST_F(ChatData, OtherKindsSayThatRowsAreConversations) {
  config_.data.kind = DataKind::completion;
  EXPECT_TRUE(ends(error(line(kTwoTurns), false),
                   "among the fields messages; set data.kind to chat, as the rows are conversations"));
  config_.data.input = "question";
  EXPECT_TRUE(ends(error(line(kTwoTurns), false), ", and leave data.input and data.target out"));
  config_.data.input.clear();
  config_.data.kind = DataKind::text;
  EXPECT_TRUE(ends(error(line(kTwoTurns), false), "; set data.kind to chat, as the rows are conversations"));
}

TEST_F(ChatData, RowsThatAreWrongAreNamed) {
  const std::string wrong = R"({"messages": [{"role": "user", "content": "one"}, {"content": "two"}]})";
  EXPECT_EQ(error(line(kTwoTurns) + line(wrong), false), "data.jsonl:2: message 2 has no \"role\"");
  config_.data.kind = DataKind::chat;
  EXPECT_EQ(error(R"({"text": "one"})", false),
            "data.jsonl:1: kind chat needs messages, conversations, instruction and output, or prompt and "
            "completion as lists of "
            "messages; the row has text");
}

}  // namespace
}  // namespace trainer
