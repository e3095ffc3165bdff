// What libraries throw, in words of ours.
#include "base/foreign_errors.h"

#include <regex>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "support/error_message.h"
#include "support/hostile_json.h"

namespace trainer {
namespace {

using nlohmann::json;

template <class Call>
std::string words(const Call& call) {
  return test::error_message<FormatError>([&] { in_our_words("file.json", "copy it again", call); });
}

TEST(ForeignErrors, OfJsonSayWhatIsWrongWithTheFile) {
  const json object = json::parse(R"({"a": 1, "list": [1]})");
  EXPECT_EQ(words([&] { static_cast<void>(object.at("b")); }), "file.json: 'b' is missing; copy it again");
  EXPECT_EQ(words([&] { static_cast<void>(object.at("a").get<std::string>()); }),
            "file.json: has a number where a text is expected; copy it again");
  EXPECT_EQ(words([&] { static_cast<void>(object.at("a").at("b")); }),
            "file.json: has a number where an object or a list is expected; copy it again");
  EXPECT_EQ(words([&] { static_cast<void>(object.at("list").at(7)); }),
            "file.json: has a list that is too short; copy it again");
  EXPECT_EQ(words([] { return json::parse("{"); }), "file.json: is not valid JSON; copy it again");
  EXPECT_EQ(words([] { return json::parse("1e999"); }),
            "file.json: has a number that is too large; copy it again");
  EXPECT_EQ(words([&] { static_cast<void>(json("\xff").dump()); }),
            "file.json: has bytes that are no UTF-8; copy it again");
}

TEST(ForeignErrors, OfOtherLibrariesSayNothingForeign) {
  const std::vector<std::exception_ptr> all{
      std::make_exception_ptr(std::length_error("vector<bool>::_M_fill_insert")),
      std::make_exception_ptr(std::out_of_range("basic_string::at: __n (which is 7)")),
      std::make_exception_ptr(std::invalid_argument("stoi")),
      std::make_exception_ptr(std::runtime_error("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] "
                                                 "Connection closed by peer [127.0.0.1]:4096")),
      std::make_exception_ptr(std::runtime_error("anything \x1b[31m")),
      std::make_exception_ptr(YAML::ParserException(YAML::Mark(), "bad conversion"))};
  for (const std::exception_ptr& error : all) {
    const std::string said = words([&] { std::rethrow_exception(error); });
    EXPECT_EQ(test::foreign_words(said), "") << said;
  }
  EXPECT_NE(words([&] { std::rethrow_exception(all[3]); }).find("the other side closed the connection"),
            std::string::npos);
}

TEST(ForeignErrors, ErrorsOfOursPass) {
  EXPECT_EQ(test::error_message<DataError>([] { in_our_words("a", "b", [] { throw DataError("ours"); }); }),
            "ours");
  EXPECT_THROW(in_our_words("a", "b", [] { throw std::bad_alloc(); }), std::bad_alloc);
  EXPECT_EQ(in_our_words("a", "b", [] { return 7; }), 7);
}

TEST(Printable, LeavesTextAsItIs) {
  for (const std::string text : {"", "a\tb\nc", "grün 你好 😀", "{\"a\": [1]}", "שלום", "\u00a0"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, EscapesWhatATerminalObeysAndWhatIsNoText) {
  EXPECT_EQ(printable("a\x1b[31mb\a"), "a\\x1b[31mb\\x07");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("a\rb\x7f"), "a\\rb\\x7f");
  EXPECT_EQ(printable("\xff\xc3(\xe4\xbd"), "\\xff\\xc3(\\xe4\\xbd");
  EXPECT_EQ(printable("\xc0\x80\xed\xa0\x80\xf5\x80\x80\x80"),
            "\\xc0\\x80\\xed\\xa0\\x80\\xf5\\x80\\x80\\x80");
  EXPECT_EQ(printable("\u009b31m\u202etxt.exe\u2028"), "\\u009b31m\\u202etxt.exe\\u2028");
}

}  // namespace
}  // namespace trainer
