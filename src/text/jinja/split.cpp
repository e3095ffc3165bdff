#include "text/jinja/split.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/utf8.h"
#include "text/unicode/unicode.h"

namespace trainer::jinja {
namespace {

constexpr int64_t kWidestPadding = 100'000;

struct Piece {
  size_t begin, end;
};
using Pieces = CountedVector<Piece>;

int64_t unlimited(int64_t limit) { return limit < 0 ? std::numeric_limits<int64_t>::max() : limit; }

// Words between white space.
Pieces words(const std::string& bytes) {
  Budget::spend(bytes.size());
  Pieces out;
  bool in_word = false;
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    const bool space = is_python_space(next_code_point(bytes, at));
    if (!space && !in_word) out.push_back({begin, at});
    if (!space) out.back().end = at;
    in_word = !space;
  }
  return out;
}

List texts(const Text& text, const Pieces& pieces) {
  List out;
  for (const auto& [begin, end] : pieces) out.push_back(Value(text.slice(begin, end)));
  return out;
}

bool is_line_end(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

size_t find_bytes(std::string_view bytes, std::string_view sought, size_t at) {
  if (at > bytes.size()) return std::string::npos;
  const char* begin = bytes.data() + at;
  const auto* found =
      static_cast<const char*>(memmem(begin, bytes.size() - at, sought.data(), sought.size()));
  const size_t place = found ? static_cast<size_t>(found - bytes.data()) : std::string::npos;
  Budget::spend_bytes((found ? place : bytes.size()) - at);
  return place;
}

size_t find_last_bytes(std::string_view bytes, std::string_view sought, size_t at) {
  if (sought.size() > bytes.size()) return std::string::npos;
  const size_t last = std::min(at, bytes.size() - sought.size());
  if (sought.empty()) return last;
  for (size_t end = last + 1;;) {
    const auto* found = static_cast<const char*>(memrchr(bytes.data(), sought[0], end));
    const size_t place = found ? static_cast<size_t>(found - bytes.data()) : 0;
    Budget::spend_bytes(end - place + sought.size());
    if (!found) return std::string::npos;
    if (bytes.substr(place).starts_with(sought)) return place;
    end = place;
  }
}

List split_left(const Text& text, const Text* separator, int64_t limit) {
  const std::string& bytes = text.bytes();
  const size_t splits = static_cast<size_t>(unlimited(limit));
  Pieces pieces;
  if (!separator) {
    pieces = words(bytes);
    if (pieces.size() > splits) {
      pieces.resize(splits + 1);
      pieces.back().end = bytes.size();
    }
    return texts(text, pieces);
  }
  size_t begin = 0;
  while (pieces.size() < splits) {
    const size_t found = find_bytes(bytes, separator->bytes(), begin);
    if (found == std::string::npos) break;
    pieces.push_back({begin, found});
    begin = found + separator->bytes().size();
  }
  pieces.push_back({begin, bytes.size()});
  return texts(text, pieces);
}

List split_right(const Text& text, const Text* separator, int64_t limit) {
  const std::string& bytes = text.bytes();
  const size_t splits = static_cast<size_t>(unlimited(limit));
  Pieces pieces;
  if (!separator) {
    pieces = words(bytes);
    if (pieces.size() > splits) {
      const size_t end = pieces[pieces.size() - splits - 1].end;
      pieces.erase(pieces.begin(), pieces.end() - static_cast<std::ptrdiff_t>(splits) - 1);
      pieces.front() = {0, end};
    }
    return texts(text, pieces);
  }
  size_t end = bytes.size();
  while (pieces.size() < splits) {
    const size_t size = separator->bytes().size();
    if (end < size) break;
    const size_t found = find_last_bytes(bytes, separator->bytes(), end - size);
    if (found == std::string::npos) break;
    pieces.push_back({found + size, end});
    end = found;
  }
  pieces.push_back({0, end});
  std::ranges::reverse(pieces);
  return texts(text, pieces);
}

List split_lines(const Text& text, bool keep_ends) {
  const std::string& bytes = text.bytes();
  Budget::spend(bytes.size());
  Pieces pieces;
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t here = at;
    if (!is_line_end(next_code_point(bytes, at))) continue;
    if (bytes[here] == '\r' && at < bytes.size() && bytes[at] == '\n') at++;
    pieces.push_back({begin, keep_ends ? at : here});
    begin = at;
  }
  if (begin < bytes.size()) pieces.push_back({begin, bytes.size()});
  return texts(text, pieces);
}

Text replace(const Text& text, const Text& old, const Text& by, int64_t limit) {
  const int64_t most = unlimited(limit);
  Text out("", text.safe());
  size_t begin = 0;
  if (old.empty()) {  // between all characters, and at both ends
    const CountedVector<size_t> at = text.borders();
    for (size_t i = 0; i < at.size() && static_cast<int64_t>(i) < most; i++) {
      out.append(text.slice(begin, at[i])).append(by);
      begin = at[i];
    }
    return out.append(text.slice(begin, text.bytes().size()));
  }
  for (int64_t count = 0; count < most; count++) {
    const size_t found = find_bytes(text.bytes(), old.bytes(), begin);
    if (found == std::string::npos) break;
    out.append(text.slice(begin, found)).append(by);
    begin = found + old.bytes().size();
  }
  return out.append(text.slice(begin, text.bytes().size()));
}

Text padded(const Text& text, int64_t width, const Text& fill, char side) {
  if (width > kWidestPadding) throw RenderError("the width is too large");
  const int64_t missing = width - static_cast<int64_t>(text.length());
  if (missing <= 0) return text;
  int64_t left = 0;
  if (side == '>') left = missing;
  if (side == '^') left = missing / 2;
  if (side == 'c') left = missing / 2 + (missing & width & 1);
  Text out("", text.safe());
  for (int64_t i = 0; i < left; i++) out.append(fill);
  out.append(text);
  for (int64_t i = left; i < missing; i++) out.append(fill);
  return out;
}

}  // namespace trainer::jinja
