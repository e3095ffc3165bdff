// Span corruption: text with parts taken out, as data. Lengths follow t5/data/preprocessors.py
// (random_spans_noise_mask) of the T5 repository: its formula is repeated here, with numpy's rounding.
#include <cmath>
#include <map>
#include <set>

#include "trainer/data/batching.h"

#include "data/fixture.h"

namespace trainer {
namespace {

constexpr int32_t kFirstSentinel = 900;

class SpanWords : public WordTokenizer {
 public:
  using WordTokenizer::WordTokenizer;
  std::optional<int32_t> token_to_id(std::string_view token) const override {
    for (int32_t i = 0; i < sentinels; i++) {
      if (token == concat("<extra_id_", i, ">")) return kFirstSentinel + i;
    }
    return WordTokenizer::token_to_id(token);
  }
  int32_t sentinels = 100;
};

// Puts the parts of the target back where their sentinels stand in the source.
Ids put_back(const Sample& sample) {
  std::map<int32_t, Ids> parts;
  int32_t last = -1;
  for (const int32_t id : sample.labels) {
    if (id >= kFirstSentinel)
      last = id;
    else if (id != 1)
      parts[last].push_back(id);
  }
  Ids text;
  int32_t expected = kFirstSentinel;
  for (const int32_t id : sample.input_ids) {
    if (id == 1) continue;
    if (id < kFirstSentinel) {
      text.push_back(id);
      continue;
    }
    EXPECT_EQ(id, expected++);
    text.insert(text.end(), parts[id].begin(), parts[id].end());
  }
  const Ids rest = parts[-1];  // the end of a text, which no sentinel marks
  text.insert(text.end(), rest.begin(), rest.end());
  return text;
}

class SpanNoiseData : public DataTest {
 protected:
  SpanNoiseData() {
    config_.data.kind = DataKind::span_corruption;
    config_.data.max_source_length = 60;
    config_.data.max_target_length = 40;
  }
  Dataset text(int words, const std::string& cache = "") {
    std::string row = R"({"text": ")";
    for (int i = 0; i < words; i++) row += concat(10 + i, " ");
    config_.data.cache = cache;
    return Dataset::open({write("text.jsonl", row + "\"}\n")}, config_, tokenizer_, true);
  }
  Ids whole(const Dataset& data, int64_t epoch) {
    Ids all;
    for (int64_t i = 0; i < data.size(); i++) {
      const Ids piece = put_back(data.sample(i, 0, epoch));
      all.insert(all.end(), piece.begin(), piece.end());
    }
    return all;
  }
  SpanWords tokenizer_;
};

Ids counted(int words) {
  Ids ids;
  for (int i = 0; i < words; i++) ids.push_back(10 + i);
  return ids;
}

TEST_F(SpanNoiseData, SourceAndTargetAreTheTextInEveryEpoch) {
  const Dataset data = text(300);
  EXPECT_GT(data.size(), 3);
  for (const int64_t epoch : {0, 1, 7}) EXPECT_EQ(whole(data, epoch), counted(300));
}

TEST_F(SpanNoiseData, LengthsAreThoseOfTheFormulaInEveryEpoch) {
  for (const int words : {2, 3, 7, 20, 51}) {
    const Dataset data = text(words);
    ASSERT_EQ(data.size(), 1) << words;
    const double noise = std::clamp(std::nearbyint(words * 0.15), 1.0, words - 1.0);
    const double spans = std::max(std::nearbyint(noise / 3), 1.0);
    for (const int64_t epoch : {0, 5}) {
      const Sample sample = data.sample(0, 0, epoch);
      EXPECT_EQ(std::ssize(sample.input_ids), words - noise + spans + 1) << words;
      EXPECT_EQ(std::ssize(sample.labels), noise + spans + 1) << words;
      EXPECT_EQ(sample.input_ids.back(), 1);
      EXPECT_EQ(sample.labels.back(), 1);
      EXPECT_LT(sample.input_ids.front(), kFirstSentinel);  // a text begins with what stays
    }
    EXPECT_EQ(data.lengths(0).input_tokens, std::ssize(data.sample(0).input_ids));
    EXPECT_EQ(data.lengths(0).target_tokens, std::ssize(data.sample(0).labels));
  }
}

TEST_F(SpanNoiseData, EpochAndSeedDecideWhatIsTakenOut) {
  const Dataset data = text(50);
  EXPECT_EQ(data.sample(0, 0, 3).labels, data.sample(0, 0, 3).labels);
  EXPECT_NE(data.sample(0, 0, 3).labels, data.sample(0, 0, 4).labels);
  const Ids before = data.sample(0).labels;
  config_.seed = 43;
  EXPECT_NE(text(50).sample(0).labels, before);
}

// Of 40 tokens 6 are taken out in 2 parts, and the text before the first part has 1 to 33 of the 34 others.
TEST_F(SpanNoiseData, EveryPlaceOfTheFirstPartIsEquallyLikely) {
  const Dataset data = text(40);
  constexpr int kEpochs = 3300;
  std::vector<int> began(34);
  for (int epoch = 0; epoch < kEpochs; epoch++) {
    const Ids source = data.sample(0, 0, epoch).input_ids;
    began.at(static_cast<size_t>(std::ranges::find(source, kFirstSentinel) - source.begin()))++;
  }
  EXPECT_EQ(began[0], 0);
  for (size_t i = 1; i < began.size(); i++) EXPECT_NEAR(began[i], 100, 50) << i;  // five deviations
}

TEST_F(SpanNoiseData, StoredPiecesGiveTheSameSamples) {
  const auto samples = [&](const std::string& cache) {
    const Dataset data = text(500, cache);
    std::vector<Ids> all;
    for (int64_t i = 0; i < data.size(); i++) {
      all.push_back(data.sample(i, 0, 2).input_ids);
      all.push_back(data.sample(i, 0, 2).labels);
    }
    return all;
  };
  const std::vector<Ids> fresh = samples("");
  const std::string cache = folder_.string() + "/cache";
  EXPECT_EQ(samples(cache), fresh);
  EXPECT_EQ(samples(cache), fresh);  // reads what was stored
}

TEST_F(SpanNoiseData, PiecesAreAsLongAsTheLengthsAllow) {
  const Dataset data = text(500);
  for (int64_t i = 0; i + 1 < data.size(); i++) {
    EXPECT_LE(data.lengths(i).input_tokens, 60);
    EXPECT_LE(data.lengths(i).target_tokens, 40);
    EXPECT_GE(data.lengths(i).input_tokens, 59);
  }
}

TEST_F(SpanNoiseData, APrefixIsFollowedByTheRest) {
  config_.data.noise = NoiseForm::prefix;
  config_.data.noise_rate = 0.25;
  const Dataset data = text(40);
  ASSERT_EQ(data.size(), 1);
  EXPECT_EQ(data.sample(0).labels, (Ids{40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 1}));
  EXPECT_EQ(put_back(data.sample(0)), counted(40));
}

TEST_F(SpanNoiseData, Ul2MixesItsFormsAndLosesNothing) {
  config_.data.noise = NoiseForm::ul2;
  config_.data.max_source_length = 40;
  const Dataset data = text(880);
  std::set<int64_t> shares;
  Ids all;
  for (int64_t i = 0; i < data.size(); i++) {
    Sample sample = data.sample(i);
    EXPECT_EQ(sample.input_ids.front(), 2);  // "[NLU]" and the others are no words of this tokenizer
    sample.input_ids.erase(sample.input_ids.begin());
    const Ids piece = put_back(sample);
    all.insert(all.end(), piece.begin(), piece.end());
    shares.insert(std::lround(10.0 * data.lengths(i).target_tokens / std::ssize(piece)));
  }
  EXPECT_EQ(all, counted(880));
  EXPECT_GE(shares.size(), 3u);
}

TEST_F(SpanNoiseData, WhatCannotBeIsNamed) {
  const auto problem = [&](auto change) {
    change();
    try {
      text(100);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  EXPECT_NE(problem([&] {
              tokenizer_.sentinels = 2;
            }).find("up to 3 parts, but the tokenizer has only 2 sentinels"),
            std::string::npos);
  EXPECT_NE(problem([&] { tokenizer_.sentinels = 0; }).find("no sentinels"), std::string::npos);
  tokenizer_.sentinels = 100;
  EXPECT_NE(problem([&] { config_.data.max_target_length = 2; }).find("no text fits"), std::string::npos);
  config_.data.max_target_length = 40;
  EXPECT_THROW(Dataset::open({write("x.jsonl", R"({"text": "10 11 12"})")}, config_, tokenizer_, false),
               ConfigError);
}

}  // namespace
}  // namespace trainer
