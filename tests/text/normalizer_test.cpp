// Text that is reported as already normalized really is unchanged by normalization.
#include "text/tokenizer/normalizer.h"

#include <random>

#include <gtest/gtest.h>

#include "base/utf8.h"
#include "text/code_points.h"

namespace trainer {
namespace {

bool stays(char32_t c) { return !may_change(text_of({c}), NormalForm::c); }

TEST(Normalizer, CharactersReportedInFormCStayAloneAndAfterOthers) {
  int64_t count = 0;
  for (char32_t c = 0; c < 0x110000; c++) {
    if (is_surrogate(c) || !stays(c)) continue;
    count++;
    // After the characters that combine with most others: letters, a Korean syllable without a final
    // consonant, Kana.
    const std::string text =
        text_of({c, 'a', c, 'O', c, 0x3b9, c, 0x438, c, 0xac00, c, 0x304b, c, 0x1b05, c});
    ASSERT_EQ(to_normal_form(text, NormalForm::c), text) << std::hex << static_cast<uint32_t>(c);
  }
  EXPECT_GT(count, 100'000);  // Chinese, Korean, ...
}

TEST(Normalizer, TextReportedInFormCStays) {
  std::mt19937 draw(1);
  const char32_t ends[]{0x300, 0x600, 0x3100, 0xac00, 0xd7ff, 0x11200, 0x110000};
  int64_t said = 0;
  for (int round = 0; round < 200'000; round++) {
    std::vector<char32_t> characters(1 + draw() % 4);
    for (char32_t& c : characters) {
      c = draw() % ends[draw() % std::size(ends)];
      if (is_surrogate(c)) c = 'x';
    }
    const std::string text = text_of(characters);
    if (may_change(text, NormalForm::c)) continue;
    said++;
    ASSERT_EQ(to_normal_form(text, NormalForm::c), text);
  }
  EXPECT_GT(said, 10'000);
}

TEST(Normalizer, MarksAndSingletonsMayChange) {
  for (const int c :
       {0x301, 0x340, 0x37e, 0x387, 0x93c, 0x1161, 0x11a8, 0x1fee, 0x2126, 0x212a, 0x3099, 0xf900, 0x2f800})
    EXPECT_TRUE(may_change(text_of({static_cast<char32_t>(c)}), NormalForm::c)) << std::hex << c;
}

}  // namespace
}  // namespace trainer
