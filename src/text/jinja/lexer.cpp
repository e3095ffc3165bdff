#include "text/jinja/lexer.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "trainer/base/strings.h"

#include "base/utf8.h"
#include "text/jinja/text.h"
#include "text/unicode/unicode.h"

namespace trainer::jinja {
namespace {

// The escapes of string literals in templates.

// Reads `digits` digits of hexadecimal at `at`.
char32_t hexadecimal(const std::string& text, size_t at, size_t digits, int line) {
  uint32_t value = 0;
  const char* begin = text.data() + at;
  const char* end = text.data() + std::min(text.size(), at + digits);
  const auto result = std::from_chars(begin, end, value, 16);
  if (result.ptr != text.data() + at + digits || value > 0x10ffff)
    throw SyntaxError(concat("a damaged escape in the string '", text, "'"), line);
  if (value >= 0xd800 && value <= 0xdfff)
    throw SyntaxError(concat("a surrogate, which is no character, in the string '", text, "'"), line);
  return value;
}

// Replaces Python's escapes in the text between the quotes. Throws SyntaxError for a bad escape.
std::string unescape_literal(const std::string& text, int line) {
  constexpr std::string_view names = "abfnrtv\\'\"", values = "\a\b\f\n\r\t\v\\'\"";
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    if (const size_t simple = names.find(c); simple != std::string_view::npos) {
      out += values[simple];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      append_code_point(out, hexadecimal(text, i + 1, digits, line));
      i += digits;
    } else if (c >= '0' && c <= '7') {
      char32_t value = 0;
      size_t count = 0;
      for (; count < 3 && i < text.size() && text[i] >= '0' && text[i] <= '7'; count++, i++)
        value = value * 8 + static_cast<char32_t>(text[i] - '0');
      i--;
      append_code_point(out, value);
    } else if (c == 'N') {
      throw SyntaxError("named characters, \\N{...}, are not supported", line);
    } else if (c != '\n') {  // a line break after a backslash is not part of the string
      out += '\\';
      out += c;
    }
  }
  return out;
}

using Type = Token::Type;

// Line ends become \n, and one at the very end goes.
std::string normalized(const std::string& source) {
  std::string out;
  for (size_t i = 0; i < source.size(); i++) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out += '\n';
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

class Lexer {
 public:
  explicit Lexer(const std::string& source) : source_(normalized(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) data();
    add(Type::end, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool next_is(std::string_view text) const { return rest().starts_with(text); }
  void add(Type type, std::string value) { tokens_.push_back({type, std::move(value), line_}); }
  [[noreturn]] void fail(const std::string& what) const { throw SyntaxError(what, line_); }

  void skip(size_t bytes) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + bytes), '\n'));
    at_ += bytes;
    line_starting_ = bytes ? source_[at_ - 1] == '\n' : line_starting_;
  }

  // The length of the white space at byte `from`.
  size_t space_at(size_t from) const {
    size_t end = from;
    while (end < source_.size()) {
      size_t next = end;
      if (!is_python_space(next_code_point(source_, next))) break;
      end = next;
    }
    return end - from;
  }

  // The length of the end of a tag ("%}", "-%}" with the white space behind it, ...) at byte `from`; 0: there
  // is none. A block and a comment take a line end with them, a variable does not.
  size_t tag_end_at(size_t from, std::string_view end, bool block) const {
    const std::string_view text = std::string_view(source_).substr(from);
    if (text.starts_with('-') && text.substr(1).starts_with(end))
      return 1 + end.size() + space_at(from + 1 + end.size());
    if (block && text.starts_with('+') && text.substr(1).starts_with(end)) return 1 + end.size();
    if (!text.starts_with(end)) return 0;
    return end.size() + (block && text.substr(end.size()).starts_with('\n'));
  }

  // Text up to a tag whose white space control is `sign`.
  void add_data(size_t end, char sign, bool variable) {
    const Text text(source_.substr(at_, end - at_));
    std::string kept = text.bytes();
    if (sign == '-') {
      kept = text.strip(nullptr, false, true).bytes();
    } else if (sign != '+' && !variable) {
      const size_t line = kept.rfind('\n') + 1;  // npos + 1 is 0
      const bool blank = Text(kept.substr(line)).strip(nullptr, true, true).empty();
      if (blank && (line > 0 || line_starting_)) kept.resize(line);
    }
    if (!kept.empty()) add(Type::data, kept);
    skip(end - at_);
  }

  char sign_at(size_t from) const {
    const char c = from < source_.size() ? source_[from] : '\0';
    return c == '-' || c == '+' ? c : '\0';
  }

  void data() {
    size_t tag = at_;
    const auto opens = [&](size_t i) {
      return source_[i] == '{' && i + 1 < source_.size() &&
             (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#');
    };
    while (tag < source_.size() && !opens(tag)) tag++;
    if (tag == source_.size()) {
      add(Type::data, std::string(rest()));
      return skip(source_.size() - at_);
    }
    const char kind = source_[tag + 1], sign = sign_at(tag + 2);
    add_data(tag, sign, kind == '{');
    if (kind == '%') {
      if (const size_t length = raw_begin()) return raw(length);
    }
    const size_t begin = sign ? 3 : 2;
    if (kind == '#') return comment(begin);
    add(kind == '{' ? Type::variable_begin : Type::block_begin, "");
    skip(begin);
    tag_content(kind == '%');
  }

  void comment(size_t begin) {
    for (size_t i = at_ + begin; i < source_.size(); i++) {
      if (const size_t end = tag_end_at(i, "#}", true)) return skip(i + end - at_);
    }
    if (at_ + begin == source_.size()) return skip(begin);  // jinja2 misses the end only of what has begun
    fail("Missing end of comment tag");
  }

  // The length of the word and the white space around it at byte `from`; 0: it is not there.
  size_t word_at(size_t from, std::string_view word) const {
    const size_t before = space_at(from);
    if (!std::string_view(source_).substr(from + before).starts_with(word)) return 0;
    return before + word.size() + space_at(from + before + word.size());
  }

  // The length of a `{% raw %}` that begins here; 0: another tag does.
  size_t raw_begin() const {
    const size_t sign = sign_at(at_ + 2) ? 3 : 2;
    const size_t word = word_at(at_ + sign, "raw");
    if (!word || next_is_plus_end(at_ + sign + word)) return 0;
    const size_t from = at_ + sign + word;
    const size_t end = tag_end_at(from, "%}", true);
    if (!end) return 0;
    // Behind `raw`, the line end stays.
    return sign + word + (source_[from] == '-' ? end : 2);
  }
  bool next_is_plus_end(size_t from) const { return from < source_.size() && source_[from] == '+'; }

  void raw(size_t begin) {
    skip(begin);
    for (size_t i = at_; i < source_.size(); i++) {
      if (!std::string_view(source_).substr(i).starts_with("{%")) continue;
      const char sign = sign_at(i + 2);
      const size_t word_from = i + (sign ? 3 : 2);
      const size_t word = word_at(word_from, "endraw");
      const size_t end = word ? tag_end_at(word_from + word, "%}", true) : 0;
      if (!end) continue;
      add_data(i, sign, false);
      return skip(word_from + word + end - at_);
    }
    if (at_ < source_.size()) fail("Missing end of raw directive");
  }

  void tag_content(bool block) {
    std::string open;  // brackets to be closed
    while (at_ < source_.size()) {
      if (open.empty()) {
        if (const size_t end = tag_end_at(at_, block ? "%}" : "}}", block)) {
          add(block ? Type::block_end : Type::variable_end, "");
          return skip(end);
        }
      }
      if (const size_t space = space_at(at_)) {
        skip(space);
      } else {
        token(open);
      }
    }
    fail(block ? "the tag {% is not closed" : "the expression {{ is not closed");
  }

  void token(std::string& open) {
    const char c = source_[at_];
    if (is_digit(c)) return number();
    if (is_name_start(c)) return name();
    if (c == '"' || c == '\'') return string();
    sign(open);
  }

  void name() {
    size_t end = at_;
    while (end < source_.size() && (is_name_start(source_[end]) || is_digit(source_[end]))) end++;
    add(Type::name, source_.substr(at_, end - at_));
    skip(end - at_);
  }

  // Digits with single underscores between them, from byte `from`.
  size_t digits_at(size_t from) const {
    size_t end = from;
    const auto digit = [&](size_t i) { return i < source_.size() && is_digit(source_[i]); };
    while (digit(end) || (end > from && end < source_.size() && source_[end] == '_' && digit(end + 1))) end++;
    return end - from;
  }

  void number() {
    const auto at = [&](size_t i) { return i < source_.size() ? source_[i] : '\0'; };
    if (at(at_) == '0' && std::string_view("xXoObB").find(at(at_ + 1)) != std::string_view::npos &&
        at(at_ + 1))
      fail("numbers that are not decimal are not supported");
    size_t end = at_ + digits_at(at_);
    bool real = false;
    if (!(at_ > 0 && source_[at_ - 1] == '.')) {
      if (at(end) == '.' && digits_at(end + 1)) {
        end += 1 + digits_at(end + 1);
        real = true;
      }
      const size_t sign = at(end + 1) == '+' || at(end + 1) == '-' ? 1 : 0;
      if ((at(end) == 'e' || at(end) == 'E') && digits_at(end + 1 + sign)) {
        end += 1 + sign + digits_at(end + 1 + sign);
        real = true;
      }
    }
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    add(real ? Type::real : Type::integer, text);
    skip(end - at_);
  }

  void string() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail("a string is not closed");
    add(Type::string, unescape_literal(source_.substr(at_ + 1, end - at_ - 1), line_));
    skip(end + 1 - at_);
  }

  void sign(std::string& open) {
    constexpr std::string_view signs[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                          "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                          ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto found = std::ranges::find_if(signs, [&](std::string_view s) { return next_is(s); });
    if (found == std::end(signs)) {
      size_t offset = at_;
      fail(concat("unexpected character '", utf8(next_code_point(source_, offset)), "'"));
    }
    const char c = (*found)[0];
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '{') open += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail(concat("unexpected '", c, "'"));
      if (open.back() != c) fail(concat("unexpected '", c, "', expected '", open.back(), "'"));
      open.pop_back();
    }
    add(Type::sign, std::string(*found));
    skip(found->size());
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(const std::string& source) { return Lexer(source).run(); }

}  // namespace trainer::jinja
