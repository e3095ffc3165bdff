// Samples as they are shown to the user: exactly what the tokenizer decodes from their ids.
#include "trainer/data/sample_view.h"

#include "trainer/text/tokenizer.h"

#include "data/fixture.h"

namespace trainer {
namespace {

using View = DataTest;

std::string text_of(const std::vector<SampleView::Piece>& pieces) {
  std::string text;
  for (const SampleView::Piece& piece : pieces) text += piece.text;
  return text;
}

// ids and labels where bit i of `learned` says whether token i is supervised.
Sample sample_of(const Ids& ids, unsigned learned) {
  Sample sample{ids, ids};
  for (size_t i = 0; i < ids.size(); i++) {
    if (((learned >> i) & 1) == 0) sample.labels[i] = kIgnore;
  }
  return sample;
}

TEST_F(View, PiecesMakeUpWhatTheTokenizerDecodes) {
  for (const char* family : {"qwen", "llama2_v5", "llama3", "gpt2", "t5"}) {
    const auto tokenizer = load_tokenizer(concat(SOURCE_DIR "/tests/goldens/text/", family));
    const Ids ids = tokenizer->encode("Größe 日本 🙂 a  b\n c", true);
    const std::string whole = tokenizer->decode(ids, false);
    for (const unsigned learned : {0u, ~0u, 0xaaaaaaaau, 0xf0f0f0f0u, 0x00ff00ffu}) {
      const SampleView view = view_of(sample_of(ids, learned), false, "x:1", *tokenizer);
      EXPECT_EQ(text_of(view.input), whole) << family << ' ' << learned;
      EXPECT_TRUE(view.target.empty());
      for (size_t i = 1; i < view.input.size(); i++)
        EXPECT_NE(view.input[i].supervised, view.input[i - 1].supervised);
      for (const SampleView::Piece& piece : view.input)
        EXPECT_TRUE(piece.text.empty() || (piece.text.front() & 0xc0) != 0x80) << "begins inside a character";
    }
  }
}

TEST_F(View, TheFirstTokenOfADecoderIsNeverLearned) {
  const auto tokenizer = load_tokenizer(SOURCE_DIR "/tests/goldens/text/llama2_v5");
  const Ids ids = tokenizer->encode("one two", true);
  const SampleView view = view_of(sample_of(ids, ~0u), false, "x:1", *tokenizer);
  ASSERT_EQ(view.input.size(), 2u);
  EXPECT_EQ(view.input[0].text, "<s>");
  EXPECT_FALSE(view.input[0].supervised);
  EXPECT_EQ(view.supervised_tokens, static_cast<int64_t>(ids.size()) - 1);
}

TEST_F(View, PartsOfAnotherWeightAreTold) {
  const auto tokenizer = load_tokenizer(SOURCE_DIR "/tests/goldens/text/llama2_v5");
  const Ids ids = tokenizer->encode("one two three", true);
  ASSERT_GE(ids.size(), 4u);
  Sample sample = sample_of(ids, ~0u);
  sample.weights.assign(ids.size(), 1.0f);
  sample.weights.back() = 0.5f;
  const SampleView view = view_of(sample, false, "x:1", *tokenizer);
  ASSERT_EQ(view.input.size(), 3u) << "the first token, those of weight 1, the last one";
  EXPECT_EQ(view.input[1].weight, 1);
  EXPECT_EQ(view.input[2].weight, 0.5f);
  EXPECT_EQ(text_of(view.input), tokenizer->decode(ids, false));
}

TEST_F(View, EncoderDecodersLearnTheTarget) {
  const auto tokenizer = load_tokenizer(SOURCE_DIR "/tests/goldens/text/t5");
  const Ids source = tokenizer->encode("one", true), target = tokenizer->encode("two", true);
  const SampleView view = view_of({source, target}, true, "x:1", *tokenizer);
  EXPECT_EQ(text_of(view.input), tokenizer->decode(source, false));
  EXPECT_EQ(text_of(view.target), tokenizer->decode(target, false));
  EXPECT_TRUE(ends(text_of(view.target), "</s>"));
  EXPECT_FALSE(view.input.at(0).supervised);
  EXPECT_TRUE(view.target.at(0).supervised);
  EXPECT_EQ(view.supervised_tokens, static_cast<int64_t>(target.size()));
}

}  // namespace
}  // namespace trainer
