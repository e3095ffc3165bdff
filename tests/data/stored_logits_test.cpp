// What a teacher has said of rows, in files: written, found again by the tokens of a row, and what does not
// fit.
#include "data/stored_logits.h"

#include <limits>

#include "data/fixture.h"

namespace trainer {
namespace {

constexpr int32_t X = kIgnore;
constexpr float kNone = -std::numeric_limits<float>::infinity();

class StoredTeacher : public DataTest {
 protected:
  StoredTeacher() {
    for (const auto& [sample, teacher] : rows_) stored_.add(sample, teacher, /*encoder_decoder=*/false);
  }
  std::filesystem::path file() const { return folder_ / "logits" / "a.safetensors"; }
  void write_all() const {
    std::filesystem::create_directories(folder_ / "logits");
    write_logits(file(), stored_, facts_);
  }

  const std::vector<std::pair<Sample, TeacherTokens>> rows_{
      {{{3, 4, 5}, {X, 4, 5}}, {2, {4, 9, 5, 8}, {-0.1F, -3, -0.2F, -2}}},
      {{{3, 6, 7}, {X, X, 7}}, {2, {6, 7}, {-0.5F, -1}}},
      {{{3, 6}, {X, X}}, {2, {}, {}}}};
  LogitsOfRows stored_{.top = 2};
  LogitsFacts facts_ = LogitsFacts::of(decoder_, {{"the model", "one"}});
};

TEST_F(StoredTeacher, IsFoundByTheTokensOfARow) {
  write_all();
  const auto logits = StoredLogits::open(folder_ / "logits", decoder_);
  EXPECT_EQ(logits->rows(), 3);
  EXPECT_EQ(logits->top(), 2);
  for (const auto& [sample, teacher] : rows_) {
    const auto found = logits->of(sample, /*number=*/77, false);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->ids, teacher.ids);
    EXPECT_EQ(found->log_probs, teacher.log_probs);
  }
  EXPECT_FALSE(logits->of({{3, 4, 5}, {X, X, 5}}, 0, false)) << "another part is learned";
  EXPECT_FALSE(logits->of({{3, 5, 5}, {X, X, 5}}, 0, false));
}

TEST_F(StoredTeacher, OfTheDataIsThatOfItsSamples) {
  config_.data.max_length = 8;
  Dataset pairs = data(R"({"input": "one", "target": "two"})"
                       "\n",
                       false);
  LogitsOfRows rows{.top = 1};
  rows.add(pairs.sample(0), {1, {5, 1}, {-0.5F, -0.25F}}, false);
  std::filesystem::create_directories(folder_ / "logits");
  write_logits(file(), rows, facts_);
  pairs.set_logits(StoredLogits::open(file(), decoder_));
  EXPECT_EQ(pairs.samples(0).front().teacher.ids, (Ids{5, 1}));
  Dataset others = data(R"({"input": "one", "target": "three"})"
                        "\n",
                        false);
  others.set_logits(StoredLogits::open(file(), decoder_));
  EXPECT_TRUE(has(error_of([&] { others.samples(0); }), "data.jsonl:1: "));
  EXPECT_TRUE(has(error_of([&] { others.samples(0); }), "has no row with these tokens"));
}

TEST_F(StoredTeacher, SaysWhyItDoesNotFit) {
  write_all();
  EXPECT_EQ(why_logits_do_not_fit(file(), facts_), "");
  LogitsFacts other = facts_;
  other.made_of["the model"] = "two";
  EXPECT_EQ(why_logits_do_not_fit(file(), other), "no longer fits, because these have changed: the model");
  other = facts_;
  other.vocabulary = "0";
  EXPECT_EQ(why_logits_do_not_fit(file(), other), "is of another vocabulary");
  std::fstream damaged(file(), std::ios::in | std::ios::out | std::ios::binary);
  damaged.seekp(-3, std::ios::end);
  damaged.put('?');
  damaged.close();
  EXPECT_EQ(why_logits_do_not_fit(file(), facts_), "is damaged");
  EXPECT_TRUE(has(error_of([&] { StoredLogits::open(file(), decoder_); }), "is damaged"));
}

TEST_F(StoredTeacher, SaysWhichSettingsWereOthers) {
  config_.data.max_length = 8;
  facts_.made_of["data.max_length"] = "4";
  facts_.made_of["data.loss_on"] = "all_turns";
  write_all();
  Dataset pairs = data(R"({"input": "one", "target": "two"})"
                       "\n",
                       false);
  pairs.set_logits(StoredLogits::open(
      file(), decoder_,
      {0, {{"data.max_length", "8"}, {"data.loss_on", "all_turns"}, {"data.input", ""}}, {}}));
  const std::string message = error_of([&] { pairs.samples(0); });
  EXPECT_TRUE(starts(message, "data.jsonl:1: logits/a.safetensors has no row with these tokens"));
  EXPECT_TRUE(ends(message, "was made with other settings: data.max_length: 4 there, 8 here"));
}

// As another program writes it: without a checksum.
TEST_F(StoredTeacher, OfAnotherProgramIsCheckedRowByRow) {
  const auto error_with = [&](const std::string& name, Dtype dtype, std::vector<int32_t> values) {
    write_all();
    SafetensorsFile stored = read_safetensors(file());
    TensorView& view = stored.tensors.at(name);
    view = {dtype, view.shape, reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(int32_t)};
    const std::filesystem::path other = folder_ / "other.safetensors";
    write_safetensors(other, stored.tensors, {});
    return error_of([&] { StoredLogits::open(other, decoder_); });
  };
  EXPECT_EQ(error_with("labels", Dtype::i32, {4, 5, 7}), "");
  EXPECT_TRUE(starts(error_with("labels", Dtype::i32, {4, 5, 1000}),
                     "other.safetensors: row 2 has the token 1000, and the model's vocabulary ends at 999"));
  EXPECT_TRUE(has(error_with("tokens", Dtype::i32, {3, 4, 5, 3, 6, 7, 3, -1}), "row 3 has the token -1"));
  EXPECT_TRUE(has(error_with("ids", Dtype::i32, {4, 9, 5, 8, 6, 1234}), "row 2 has the token 1234"));
  EXPECT_TRUE(has(error_with("tokens", Dtype::f32, {3, 4, 5, 3, 6, 7, 3, 6}), "must be I32 or I64"));
}

// A start of a run hashes each file once.
TEST_F(StoredTeacher, ThatWasFoundToBeWholeIsNotReadAgain) {
  write_all();
  std::fstream damaged(file(), std::ios::in | std::ios::out | std::ios::binary);
  damaged.seekp(-3, std::ios::end);
  damaged.put('?');
  damaged.close();
  EXPECT_EQ(StoredLogits::open(file(), decoder_, {0, {}, {file()}})->rows(), 3);
}

TEST_F(StoredTeacher, OfAnotherProgramMayNameFewerTokensAtAPlace) {
  LogitsOfRows rows{.top = 3};
  const Sample sample{{3, 4}, {X, 4}};
  rows.add(sample, {3, {9, 4, 8}, {kNone, -0.5F, -2}}, false);
  std::filesystem::create_directories(folder_ / "logits");
  write_logits(file(), rows, facts_);
  const TeacherTokens found = StoredLogits::open(file(), decoder_)->of(sample, 0, false).value();
  EXPECT_EQ(found.ids, (Ids{4, 4, 8})) << "the likeliest one stands for what is none";
  EXPECT_EQ(found.log_probs, (std::vector<float>{-0.5F, kNone, -2}));
}

}  // namespace
}  // namespace trainer
