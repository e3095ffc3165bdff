// The exit code and the message of every kind of exception.
#include "base/ending.h"

#include <filesystem>
#include <new>

#include <gtest/gtest.h>

#include "trainer/base/error.h"

namespace trainer {
namespace {

template <class Exception>
Ending ending_with(const Exception& exception) {
  return ending_of(std::make_exception_ptr(exception));
}

TEST(EndingOf, ErrorsHaveTheirCodeAndMessage) {
  const Ending ending = ending_with(DataError("rows.jsonl:3: no target"));
  EXPECT_EQ(ending.code, 3);
  EXPECT_EQ(ending.message, "rows.jsonl:3: no target");
}

TEST(EndingOf, WhatTheLibraryThrowsHasTheCodeOfItsKind) {
  EXPECT_EQ(ending_with(std::bad_alloc()).code, 5);
  const std::filesystem::filesystem_error denied("x", "/a/b",
                                                 std::make_error_code(std::errc::permission_denied));
  EXPECT_EQ(ending_with(denied).code, 4);
  EXPECT_TRUE(ending_with(denied).message.starts_with("/a/b: ")) << ending_with(denied).message;
  EXPECT_EQ(ending_with(std::runtime_error("odd\nmore")).code, 1);
  const Ending odd = ending_with(std::runtime_error("vector::odd \x1b[31m\nmore"));
  EXPECT_EQ(
      odd.message,
      "internal error (an error that is not foreseen); please report it, with what --verbose says about it");
  EXPECT_EQ(odd.details, "vector::odd \\x1b[31m");
  EXPECT_EQ(ending_with(7).code, 1);
}

TEST(EndingOf, TheLastLineSaysWhichCommandExplains) {
  const auto last_line = [](const auto& error) {
    const std::string text = ending_with(error).full_text();
    return text.substr(text.rfind('\n') + 1);
  };
  EXPECT_EQ(last_line(DataError("a\nb")), "Help: trainer help data-problem");
  EXPECT_EQ(last_line(of_family(ErrorCode::disk_full, FormatError("full"))), "Help: trainer help disk-full");
  EXPECT_EQ(last_line(std::bad_alloc()), "Help: trainer help oom-host");
  EXPECT_EQ(last_line(7), "Help: trainer help internal-error");
  // A run that was stopped and saved has nothing to explain.
  EXPECT_EQ(ending_with(Error(ExitCode::interrupted, "stopped")).full_text(), "stopped");
  // Nor has a rank whose error another one reports.
  EXPECT_EQ(ending_with(FormatError("")).full_text(), "");
}

TEST(Family, WhoThrowsKnowsBest) {
  try {
    in_family(ErrorCode::data_file, [] { throw of_family(ErrorCode::disk_full, DataError("x")); });
  } catch (const DataError& error) {
    EXPECT_EQ(error.family(), ErrorCode::disk_full);
  }
  EXPECT_EQ(in_family(ErrorCode::data_file, [] { return 7; }), 7);
}

}  // namespace
}  // namespace trainer
