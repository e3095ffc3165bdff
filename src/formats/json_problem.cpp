#include "formats/json_problem.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>

#include "trainer/base/strings.h"

#include "base/text.h"

namespace trainer {
namespace {

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Returns the number of four hexadecimal digits at `at`.
std::optional<unsigned> four_digits(std::string_view text, size_t at) {
  if (at + 4 > text.size()) return std::nullopt;
  unsigned number = 0;
  for (const char c : text.substr(at, 4)) {
    const auto digit = static_cast<unsigned char>(c);
    if (std::isxdigit(digit) == 0) return std::nullopt;
    number = number * 16 +
             static_cast<unsigned>(std::isdigit(digit) != 0 ? c - '0' : std::tolower(digit) - 'a' + 10);
  }
  return number;
}

bool is_high(unsigned code) { return code >= 0xd800 && code < 0xdc00; }
bool is_low(unsigned code) { return code >= 0xdc00 && code < 0xe000; }

// Words that are values in Python, JavaScript and what they write.
struct ForeignWord {
  const char *word, *instead;
};
constexpr std::array<ForeignWord, 11> kForeignWords{{{"NaN", "null"},
                                                     {"nan", "null"},
                                                     {"Infinity", "a number or null"},
                                                     {"inf", "a number or null"},
                                                     {"Inf", "a number or null"},
                                                     {"None", "null"},
                                                     {"True", "true"},
                                                     {"False", "false"},
                                                     {"NULL", "null"},
                                                     {"undefined", "null"},
                                                     {"NA", "null"}}};

class Reader {
 public:
  Reader(std::string_view json, JsonEnd end) : json_(json), end_(end) {}

  std::optional<JsonProblem> problem() {
    while (at_ < json_.size() && !problem_) step();
    if (!problem_ && !open_.empty()) not_closed();
    return problem_;
  }

 private:
  void fail(size_t at, const std::string& what) {
    if (!problem_) problem_ = {at, what};
  }

  void not_closed() {
    const char* what = in_text_ ? "a text" : open_.back() == '{' ? "an object" : "a list";
    const char* cause = end_ == JsonEnd::file
                            ? "; the file ends within this row: it was cut off, by a download or a program "
                              "that did not finish; make it again, or remove its last line"
                        : end_ == JsonEnd::line ? "; each row must be on one line (with jq: jq -c . FILE)"
                        : end_ == JsonEnd::whole_file ? ": the end of the file is missing"
                                                      : "";
    fail(opened_, concat(what, " that begins here is not closed", cause));
  }

  void step() {
    const char c = json_[at_];
    if (is_blank(c)) {
      at_++;
    } else if (closed_) {
      after_the_end(c);
    } else if (c == '"') {
      text();
    } else if (c == '{' || c == '[') {
      if (open_.empty()) opened_ = at_;
      open_ += c;
      at_++;
    } else if (c == '}' || c == ']') {
      close(c);
    } else if (c == ',') {
      comma();
    } else if (is_letter(c)) {
      word();
    } else if (c == '\'') {
      fail(at_, "a single quote; JSON has texts and keys in double quotes (in Python: json.dumps)");
    } else if (c == '/' || c == '#') {
      fail(at_, "a comment; JSON has none");
    } else {
      at_++;
    }
  }

  void after_the_end(char c) {
    const bool rows = end_ != JsonEnd::whole_file;
    if (c == ',')
      return fail(at_, concat("a comma after the end of the object; remove it",
                              rows ? " (each line is a row of its own)" : ""));
    fail(at_,
         concat("there is more text after the end of the object", rows ? "; each line must be one row" : ""));
  }

  void close(char c) {
    if (open_.empty() || (c == '}') != (open_.back() == '{'))
      return fail(at_, concat("a ", c, " closes what is not open"));
    open_.pop_back();
    closed_ = open_.empty();
    at_++;
  }

  void comma() {
    const size_t comma = at_++;
    while (at_ < json_.size() && is_blank(json_[at_])) at_++;
    if (at_ < json_.size() && (json_[at_] == '}' || json_[at_] == ']'))
      fail(comma, concat("a comma before a ", json_[at_], "; remove it"));
  }

  void word() {
    const size_t begin = at_;
    while (at_ < json_.size() && is_letter(json_[at_])) at_++;
    const std::string_view word = json_.substr(begin, at_ - begin);
    if (word == "true" || word == "false" || word == "null") return;
    const bool is_exponent = (word == "e" || word == "E") && begin > 0 &&
                             std::isdigit(static_cast<unsigned char>(json_[begin - 1])) != 0;
    if (is_exponent) return;
    if (const auto known = std::ranges::find(kForeignWords, word, &ForeignWord::word);
        known != kForeignWords.end())
      return fail(begin, concat(word, " is no value of JSON; write ", known->instead));
    const bool cut = end_ == JsonEnd::file && at_ == json_.size();
    if (!cut)
      fail(begin,
           concat("'", one_line(word, 30), "' is not in double quotes, and neither true, false nor null"));
  }

  // From the opening quote to behind the closing one.
  void text() {
    const size_t begin = at_++;
    while (at_ < json_.size() && json_[at_] != '"') {
      const auto c = static_cast<unsigned char>(json_[at_]);
      if (c == '\\') {
        if (!escape()) return;
      } else if (c < 0x20) {
        return fail(at_, concat("a text with ", c == '\t' ? "a tab" : "a control character",
                                " as it is; write ", c == '\t' ? "\\t" : "\\u00XX"));
      } else {
        at_++;
      }
    }
    if (at_ >= json_.size()) {
      in_text_ = true;
      opened_ = begin;
      return not_closed();
    }
    at_++;
  }

  // Returns whether the text goes on.
  bool escape() {
    const size_t begin = at_++;
    if (at_ >= json_.size()) return true;
    const char c = json_[at_++];
    if (c != 'u') {
      if (std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos) return true;
      fail(begin, concat("the escape \\", one_line(json_.substr(begin + 1, 1), 4),
                         " does not exist in JSON; a \\ is written \\\\"));
      return false;
    }
    const auto code = four_digits(json_, at_);
    if (!code) {
      if (at_ + 4 > json_.size()) return true;  // the text is not closed
      fail(begin, "\\u without four hexadecimal digits");
      return false;
    }
    at_ += 4;
    if (!is_high(*code) && !is_low(*code)) return true;
    const bool escaped = json_.substr(at_).starts_with("\\u");
    const auto next = escaped ? four_digits(json_, at_ + 2) : std::nullopt;
    if (is_high(*code) && next && is_low(*next)) {
      at_ += 6;
      return true;
    }
    fail(begin,
         concat(json_.substr(begin, 6),
                " is half of a character (a surrogate without its pair), as a text that was cut within "
                "an emoji has; remove it (in Python: text.encode('utf-8', 'ignore').decode())"));
    return false;
  }

  std::string_view json_;
  JsonEnd end_;
  size_t at_ = 0, opened_ = 0;
  std::string open_;  // the brackets that are open
  bool closed_ = false, in_text_ = false;
  std::optional<JsonProblem> problem_;
};

}  // namespace

std::optional<JsonProblem> find_json_problem(std::string_view json, JsonEnd end) {
  return Reader(json, end).problem();
}

std::string json_problem(std::string_view json, JsonEnd end) {
  const auto problem = find_json_problem(json, end);
  return problem ? concat("column ", problem->byte + 1, ": ", problem->what) : "";
}

}  // namespace trainer
