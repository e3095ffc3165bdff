// The worst that a file can hold, and what no user may be told about it. For tests and fuzzers of readers.
#pragma once

#include <array>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "trainer/base/error.h"

namespace trainer::test {

// Returns words in a message that only a library says, places in its sources, or a number of bytes that has
// become negative; "" if there are none.
inline std::string foreign_words(std::string_view message) {
  constexpr std::array kForeign{"[json.exception",
                                "type must be",
                                "cannot use operator",
                                "cannot use at()",
                                "cannot use value",
                                "vector",
                                "basic_string",
                                "_M_",
                                "std::",
                                "sto"
                                "i",
                                "stol",
                                "stod",
                                "bad_alloc",
                                "map::at",
                                ".cc:",
                                ".cpp:",
                                "what():",
                                "yaml-cpp",
                                "operator[]",
                                "syntax error while",
                                "Exception raised",
                                "enforce fail",
                                "bad conversion",
                                "Thrift",
                                "arrow::",
                                "parquet::",
                                "TAPE_ERROR",
                                "c10::",
                                "gloo/",
                                "out_of_range",
                                "regex_error",
                                "-9223372",
                                "-9,223,372"};
  for (const char* words : kForeign) {
    if (message.find(words) != std::string_view::npos) return words;
  }
  return "";
}

// Texts that are no JSON, made of one that is.
inline std::vector<std::string> malformed(const std::string& json) {
  const std::string half = json.substr(0, json.size() / 2);
  std::string utf16;
  for (const char c : json) utf16 += {c, '\0'};
  return {"",
          " \n",
          "null",
          "[]",
          "[1]",
          "\"text\"",
          "7",
          half,
          half + "\x1b[31m",
          json + "}",
          json + json,
          "\xff\xfe" + utf16,
          "\x1f\x8b\x08",
          std::string(64, '\0'),
          "{\"a\": NaN}",
          "{\"a\": \"\\ud800\"}",
          "{\"a\": \"\xc3\x28\"}",
          "{\"a\": \"\n\"}",
          "{\"a\": 1e999}",
          "{'a': 1}",
          "{\"a\": tru}",
          std::string(100'000, '['),
          "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}"};
}

// Values of all kinds and sizes, as they are written.
inline const std::vector<std::string>& hostile_values() {
  static const std::vector<std::string> kValues{
      "null",
      "true",
      "0",
      "-1",
      "1.5",
      "1e308",
      "-1e308",
      "2147483648",
      "9223372036854775807",
      "9223372036854775808",
      "18446744073709551615",
      "-9000000000000000000",
      "\"\"",
      "\"7\"",
      "\"\\u001b[31m\\u0000\\u0007\\u202e\"",
      "\"../../x\"",
      "[]",
      "[null]",
      "[[1], \"a\", {}]",
      "[9223372036854775808, -1]",
      "{}",
      "{\"\\u001b[2J\": 1}",
      "{\"type\": 3, \"id\": \"x\"}",
  };
  return kValues;
}

namespace hostile {

using Json = nlohmann::ordered_json;
constexpr const char* kMark = "@@hostile@@";

// Calls `visit` with the whole text in which one value is the mark.
inline void for_each_place(
    Json& whole, Json& at, const std::string& name,
    const std::function<void(const std::string& text, const std::string& name)>& visit) {
  Json kept = std::move(at);
  at = kMark;
  visit(whole.dump(), name);
  at = std::move(kept);
  if (at.is_object()) {
    for (auto& [key, value] : at.items()) for_each_place(whole, value, name + "." + key, visit);
  } else if (at.is_array()) {
    const size_t last = at.empty() ? 0 : at.size() - 1;
    if (!at.empty()) for_each_place(whole, at[0], name + "[0]", visit);
    if (last > 0) for_each_place(whole, at[last], name + "[last]", visit);
  }
}

}  // namespace hostile

// Calls `visit` with each malformed text, and with `json`, a valid text, after one change at a time: another
// value at every key of every level, for lists in their first and last item; and without the key, or with it
// twice. `most`: only objects with so many keys are changed inside.
inline void for_each_hostile(
    const std::string& json,
    const std::function<void(const std::string& text, const std::string& what)>& visit) {
  for (const std::string& text : malformed(json)) visit(text, "malformed: " + text.substr(0, 40));
  hostile::Json whole = hostile::Json::parse(json);
  hostile::for_each_place(whole, whole, "", [&](const std::string& marked, const std::string& name) {
    const std::string mark = std::string("\"") + hostile::kMark + "\"";
    const size_t at = marked.find(mark);
    for (const std::string& value : hostile_values()) {
      std::string text = marked;
      visit(text.replace(at, mark.size(), value), name + " = " + value);
    }
    if (marked[at - 1] != ':') return;
    const size_t key = marked.rfind('"', marked.rfind('"', at - 2) - 1);  // escaped quotes make it malformed
    const std::string entry = marked.substr(key, at - key) + "1";
    std::string without = marked, twice = marked;
    visit(without.replace(key, at + mark.size() - key, "\"other\":1"), name + " renamed");
    visit(twice.replace(at, mark.size(), "1," + entry), name + " twice");
  });
}

// Calls `read`, and returns what is wrong with what it throws: anything but an error of ours, or foreign
// words in one. "" if nothing is.
inline std::string wrong_words(const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    const std::string words = foreign_words(error.what());
    return words.empty() ? "" : "says '" + words + "': " + error.what();
  } catch (const std::exception& error) {
    return std::string("throws what is no error of ours: ") + error.what();
  }
  return "";
}

}  // namespace trainer::test
