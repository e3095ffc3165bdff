// The hand-written splitters give the same words as PCRE2 with the patterns that they replace.
#include "text/tokenizer/known_splits.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "trainer/base/files.h"

#include "base/utf8.h"
#include "text/code_points.h"

namespace trainer {
namespace {

class KnownSplits : public ::testing::TestWithParam<std::string_view> {
 protected:
  KnownSplits() : known_(known_split(GetParam())), regex_(Regex::by_pcre2(GetParam(), "test")) {}

  // Splits the text in both ways and compares the words, written as "|word|word|".
  void expect_same(const std::string& text) const {
    std::vector<Span> ours, theirs;
    known_(text, ours);
    regex_.find_all(text, theirs);
    const auto bounds = [](const Span& word) { return std::pair(word.begin, word.end); };
    if (std::ranges::equal(ours, theirs, {}, bounds, bounds)) return;
    EXPECT_EQ(shown(text, ours), shown(text, theirs));
  }

 private:
  static std::string shown(const std::string& text, const std::vector<Span>& words) {
    std::string out = "|";
    for (const Span& word : words) out += text.substr(word.begin, word.end - word.begin) + "|";
    return nlohmann::json(out).dump(-1, ' ', true);
  }

  FindAll known_;
  Regex regex_;
};

TEST_P(KnownSplits, EveryCharacterBetweenOthersIsSplitAsByPcre2) {
  for (char32_t c = 0; c < 0x110000; c++) {
    if (is_surrogate(c)) continue;
    // One failure is enough: a wrong class is wrong for thousands of characters.
    expect_same(text_of({c, 'a', c, c, '1', c, ' ', c, '\n', c, ' ', ' ', c, '.', c, '\'', c, 's', c}));
    if (HasFailure()) return;
  }
}

TEST_P(KnownSplits, HardStringsAreSplitAsByPcre2) {
  const auto path = std::filesystem::path(SOURCE_DIR) / "tests/goldens/text/strings.json";
  for (const auto& text : nlohmann::json::parse(read_file(path))) expect_same(text.get<std::string>());
}

TEST_P(KnownSplits, RandomTextIsSplitAsByPcre2) {
  // The characters that the patterns name, and neighbours of each class.
  const std::vector<char32_t> chosen{' ',    ' ',    '\t',    '\n', '\r',  0x85,    0xa0,   0x2028, 0x3000,
                                     0x180e, 'a',    's',     'S',  't',   'T',     'r',    'e',    'E',
                                     'v',    'V',    'l',     'L',  'm',   'd',     'D',    0x17f,  0x212a,
                                     0xe9,   0x4e2d, 0x1d400, '0',  '7',   0xb2,    0x6f1,  0x2167, 0x1d7d8,
                                     '\'',   '\'',   '.',     '_',  0x301, 0x1f600, 0x200d, 0};
  std::mt19937 draw(1);
  for (int round = 0; round < 60000; round++) {
    std::vector<char32_t> characters(draw() % 12);
    for (char32_t& c : characters) {
      c = draw() % 8 != 0 ? chosen[draw() % chosen.size()] : static_cast<char32_t>(draw() % 0x110000);
      if (is_surrogate(c)) c = 'x';
    }
    expect_same(text_of(characters));
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Patterns, KnownSplits,
                         ::testing::Values(patterns::kGpt2, patterns::kQwen2, patterns::kLlama3));

TEST(KnownSplits, AnyOtherPatternIsLeftToPcre2) {
  EXPECT_EQ(known_split(R"(\s+)"), nullptr);
  EXPECT_EQ(known_split(std::string(patterns::kQwen2) + "|x"), nullptr);
}

}  // namespace
}  // namespace trainer
