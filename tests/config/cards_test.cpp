// How the GPUs of `trainer plan --gpus` are written.
#include "config/cards.h"

#include <gtest/gtest.h>

namespace trainer {
namespace {

TEST(Cards, AreASizeANumberOfThemAndANumberOfMachines) {
  for (const auto& [text, memory, per_machine, machines] :
       {std::tuple("24", 24'000'000'000, 1, 1), std::tuple("24GB", 24'000'000'000, 1, 1),
        std::tuple("2x24GB", 24'000'000'000, 2, 1), std::tuple("2x24", 24'000'000'000, 2, 1),
        std::tuple("2x24gb", 24'000'000'000, 2, 1), std::tuple("24G", 24'000'000'000, 1, 1),
        std::tuple("4x8x80GB", 80'000'000'000, 8, 4), std::tuple("4x1x80GB", 80'000'000'000, 1, 4),
        std::tuple("2x1GiB", int64_t{1} << 30, 2, 1), std::tuple("500MB", int64_t{500'000'000}, 1, 1)}) {
    const std::optional<Cards> cards = parse_cards(text);
    ASSERT_TRUE(cards) << text;
    EXPECT_EQ(cards->memory, memory) << text;
    EXPECT_EQ(cards->per_machine, per_machine) << text;
    EXPECT_EQ(cards->machines, machines) << text;
    EXPECT_EQ(cards->count(), per_machine * machines) << text;
  }
}

TEST(Cards, RefuseAnythingElse) {
  for (const char* text : {"", "x24GB", "0x24GB", "2x0x24GB", "2x", "2x2x2x24GB", "-2x24GB", "2X24GB", "two",
                           "24GBx2", "2 x 24GB", "0", "99999x99999x24GB", "2x24000000", "2.5x24GB"})
    EXPECT_FALSE(parse_cards(text)) << text;
}

TEST(Cards, SayWhatTheyAre) {
  EXPECT_EQ(parse_cards("24")->text(), "24.0 GB");
  EXPECT_EQ(parse_cards("2x24")->text(), "2 GPUs of 24.0 GB");
  EXPECT_EQ(parse_cards("4x8x80GB")->text(), "4 machines of 8 GPUs of 80.0 GB");
  EXPECT_EQ(parse_cards("2x1x80GB")->text(), "2 machines of 1 GPU of 80.0 GB");
}

}  // namespace
}  // namespace trainer
