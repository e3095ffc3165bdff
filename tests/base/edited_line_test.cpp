#include "base/edited_line.h"

#include <gtest/gtest.h>

namespace trainer {
namespace {

// Types bytes as a terminal sends them.
void type(EditedLine& line, std::string_view bytes) {
  KeyDecoder keys;
  for (const char byte : bytes) {
    if (const auto pressed = keys.add(byte)) line.press(*pressed);
  }
}

std::string typed(std::string_view bytes) {
  EditedLine line;
  type(line, bytes);
  return line.text();
}

TEST(EditedLine, KeysMoveTheCursorByCharacters) {
  EXPECT_EQ(typed("a\u00fcc\x1b[D\x1b[Db"), "ab\u00fcc");
  EXPECT_EQ(typed("bc\x01"
                  "a\x05"
                  "d"),
            "abcd");
  EXPECT_EQ(typed("one three\x1b[1;5D"
                  "two "),
            "one two three");
  EXPECT_EQ(typed("x\x1b[C\x1b[Cy"), "xy");
}

TEST(EditedLine, ErasesWholeCharacters) {
  EXPECT_EQ(typed("a\u00fc\u65e5\x7f\x7f"), "a");
  EXPECT_EQ(typed("\u65e5z\x1b[H\x1b[3~"), "z");
  EXPECT_EQ(typed("\x7f\x1b[3~"), "");
}

TEST(EditedLine, CutsAndInsertsAgain) {
  EXPECT_EQ(typed("one two \x17"), "one ");
  EXPECT_EQ(typed("one two\x01\x0b"), "");
  EXPECT_EQ(typed("one two\x15"), "");
  EXPECT_EQ(typed("one two\x17\x01\x19 "), "two one ");
}

TEST(EditedLine, APastedTextKeepsItsLines) { EXPECT_EQ(typed("a\x1b[200~b\rc\r\x1b[201~d"), "ab\ncd"); }

TEST(EditedLine, WhatIsNoKeyIsIgnored) {
  EXPECT_EQ(typed("a\x1b[15~b\x1b[99;9Xc"), "abc");
  EXPECT_EQ(typed("a\xff\xc3(b\x80"), "a(b");
  EXPECT_EQ(typed("a\x07"
                  "b"),
            "ab");
}

TEST(EditedLine, ArrowsBringBackEarlierLines) {
  EditedLine line;
  for (const char* text : {"first", "second", "second"}) {
    type(line, text);
    line.take();
  }
  type(line, "new\x1b[A");
  EXPECT_EQ(line.text(), "second");
  type(line, "\x1b[A\x1b[A");
  EXPECT_EQ(line.text(), "first");
  type(line, "\x1b[B\x1b[B\x1b[B");
  EXPECT_EQ(line.text(), "new");
}

TEST(EditedLine, TheViewFollowsTheCursorInANarrowTerminal) {
  EditedLine line;
  type(line, "0123456789");
  EXPECT_EQ(line.view(6).text, "56789");
  EXPECT_EQ(line.view(6).cursor, 5U);
  type(line, "\x01");
  EXPECT_EQ(line.view(6).text, "01234");
  EXPECT_EQ(line.view(6).cursor, 0U);
}

TEST(EditedLine, TheViewCountsColumns) {
  EditedLine line;
  type(line, "\u65e5\u672c");  // two columns each
  EXPECT_EQ(line.view(80).cursor, 4U);
  EXPECT_EQ(line.view(4).text, "\u672c");
  line.clear();
  type(line, "e\u0301x");  // an accent of its own
  EXPECT_EQ(line.view(80).cursor, 2U);
  line.clear();
  type(line, "\x1b[200~a\rb\x1b[201~");
  EXPECT_EQ(line.view(80).text, "a\\nb");
}

}  // namespace
}  // namespace trainer
