#include "data/sample_text.h"

#include <limits>

#include "trainer/base/strings.h"

#include "base/wrap.h"

namespace trainer {
namespace {

constexpr size_t kHead = 300, kTail = 140;  // characters shown of a long piece
constexpr const char *kColour = "\x1b[32m", *kPlain = "\x1b[0m";

// Returns the byte offset of the end of the first `characters` characters.
size_t byte_of(const std::string& text, size_t characters) {
  size_t at = 0;
  for (; characters > 0 && at < text.size(); characters--) {
    at++;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) at++;
  }
  return at;
}

std::string shown(const std::string& piece) {
  const std::string text = one_line(piece, std::numeric_limits<size_t>::max());
  const size_t characters = count_characters(text);
  if (characters <= kHead + kTail + 40) return text;
  return concat(text.substr(0, byte_of(text, kHead)), " … (",
                grouped(static_cast<int64_t>(characters - kHead - kTail)), " characters) … ",
                text.substr(byte_of(text, characters - kTail)));
}

}  // namespace

std::vector<std::string> marked_lines(const std::vector<SampleView::Piece>& pieces, const TextStyle& style,
                                      size_t width) {
  std::vector<std::string> lines{""};
  size_t column = 0;
  for (const SampleView::Piece& piece : pieces) {
    std::string text = shown(piece.text);
    if (piece.supervised && !style.colour) text = "[[" + text + "]]";
    const bool coloured = piece.supervised && style.colour;
    while (!text.empty()) {
      if (width > 0 && column == width) {
        lines.emplace_back();
        column = 0;
      }
      const size_t bytes = width > 0 ? byte_of(text, width - column) : text.size();
      const std::string part = text.substr(0, bytes);
      lines.back() += coloured ? kColour + part + kPlain : part;
      column += count_characters(part);
      text.erase(0, bytes);
    }
  }
  return lines;
}

}  // namespace trainer
