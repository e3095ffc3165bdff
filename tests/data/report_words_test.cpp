// How the report names the places of rows.
#include "data/report_words.h"

#include <gtest/gtest.h>

#include "trainer/base/strings.h"

namespace trainer {
namespace {

TEST(Places, NameAFileOnlyWhenItChanges) {
  const auto row = [](const char* origin, const char* twin) {
    NamedRow named;
    named.origin = origin;
    named.note = twin;
    return named;
  };
  RowCount rows;
  rows.count = 9;
  rows.first = {row("a.jsonl:3", "a.jsonl:1"), row("a.jsonl:30", "b.jsonl:2"),
                row("c:d.jsonl:4", "c:d.jsonl:1")};
  EXPECT_EQ(places(rows), "a.jsonl:3, :30, c:d.jsonl:4 and 6 more");
  EXPECT_EQ(places(rows, true), "a.jsonl:3 = :1, :30 = b.jsonl:2, c:d.jsonl:4 = :1 and 6 more");
}

TEST(ReportWords, AProblemOfSeveralRowsIsWrittenOnce) {
  RowCount rows;
  for (int64_t line : {3, 7, 9})
    rows.add({.line = line, .origin = concat("a.jsonl:", line), .note = line == 7 ? "short" : "no target"});
  EXPECT_EQ(with_reasons(rows), (std::vector<std::string>{"a.jsonl:3, :9: no target", "a.jsonl:7: short"}));
}

}  // namespace
}  // namespace trainer
