#include "base/shell_word.h"

#include <gtest/gtest.h>

namespace trainer {
namespace {

TEST(ShellWord, IsQuotedWhereAShellWouldChangeIt) {
  for (const char* plain : {"runs/a-1", "optimizer.learning_rate=2e-4", "a@b:c,d+%"})
    EXPECT_EQ(shell_word(plain), plain);
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("my runs/$HOME"), "'my runs/$HOME'");
  EXPECT_EQ(shell_word("it's"), R"('it'\''s')");
}

}  // namespace
}  // namespace trainer
