#include "base/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <numeric>
#include <regex>
#include <sstream>

#include "trainer/base/strings.h"

namespace trainer {
namespace {

std::string missing(const std::string& text, size_t width) {
  const size_t there = count_characters(text);
  return std::string(width > there ? width - there : 0, ' ');
}

constexpr size_t kSmallestBar = 10, kLargestBar = 30;

std::string joined(const std::vector<LinePart>& parts) {
  std::vector<std::string> texts;
  for (const LinePart& part : parts) {
    if (!part.text.empty()) texts.push_back(part.text);
  }
  return join(texts, "  ");
}

// The first `count` characters.
std::string first_characters(const std::string& text, size_t count) {
  size_t end = 0;
  while (end < text.size() && count > 0) {
    end++;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) end++;
    count--;
  }
  return text.substr(0, end);
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

size_t count_characters(std::string_view text) {
  const auto begins = [](char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; };
  return static_cast<size_t>(std::ranges::count_if(text, begins));
}

std::vector<std::string> wrapped(const std::string& text, size_t width) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string given; std::getline(in, given);) {
    std::istringstream words(given);
    std::string line;
    for (std::string word; words >> word;) {
      if (width > 0 && !line.empty() && count_characters(line) + 1 + count_characters(word) > width) {
        lines.push_back(line);
        line.clear();
      }
      line += (line.empty() ? "" : " ") + word;
    }
    lines.push_back(line);
  }
  return lines;
}

std::string padded_left(const std::string& text, size_t width) { return missing(text, width) + text; }
std::string padded_right(const std::string& text, size_t width) { return text + missing(text, width); }

std::string fitted_line(const std::vector<LinePart>& parts, size_t width) {
  std::vector<LinePart> kept = parts;
  std::string line = joined(kept);
  while (count_characters(line) > width) {
    const auto last = std::ranges::max_element(kept, {}, &LinePart::rank);
    if (last == kept.end() || last->rank == 0) break;
    kept.erase(last);
    line = joined(kept);
  }
  while (count_characters(line) > width) {
    const size_t blank = line.find_last_of(' ');
    if (blank == std::string::npos) return first_characters(line, width);
    line.erase(line.find_last_not_of(' ', blank) + 1);
  }
  return line;
}

std::string with_bar(double share, const std::string& text, size_t width) {
  const size_t used = count_characters(text) + 4;  // "[" "]" and two blanks
  if (width < used + kSmallestBar) return text;
  const size_t bar = std::min(width - used, kLargestBar);
  const size_t filled = static_cast<size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(bar));
  std::string inside(bar, ' ');
  std::fill_n(inside.begin(), filled, '=');
  if (filled < bar) inside[filled] = '>';
  return concat("[", inside, "]  ", text);
}

std::string broken_at_words(const std::string& text, size_t width, size_t used, size_t indent) {
  std::string out;
  size_t column = used;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '\n') {
      out += text[at++];
      column = 0;
      continue;
    }
    const size_t word = std::min(text.find_first_not_of(' ', at), text.size());
    const size_t end = std::min(text.find_first_of(" \n", word), text.size());
    const std::string blanks = text.substr(at, word - at), letters = text.substr(word, end - word);
    const size_t length = count_characters(letters);
    const bool begins_line = column == used && out.empty();
    if (width > 0 && !begins_line && column > indent && column + blanks.size() + length > width) {
      out += "\n" + std::string(indent, ' ') + letters;
      column = indent + length;
    } else {
      out += blanks + letters;
      column += blanks.size() + length;
    }
    at = end;
  }
  return out;
}

std::string sparkline(const std::vector<double>& values, size_t width, bool utf8) {
  constexpr std::array kBlocks{"\u2581", "\u2582", "\u2583", "\u2584",
                               "\u2585", "\u2586", "\u2587", "\u2588"};
  constexpr std::array kAscii{".", ":", "-", "=", "+", "*", "#", "%"};
  std::vector<double> points;
  const size_t count = std::min(values.size(), width);
  for (size_t i = 0; i < count; i++) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(i * values.size() / count);
    const auto last = values.begin() + static_cast<std::ptrdiff_t>((i + 1) * values.size() / count);
    points.push_back(std::accumulate(first, last, 0.0) / static_cast<double>(last - first));
  }
  if (points.empty()) return "";
  const auto [low, high] = std::ranges::minmax(points);
  std::string line;
  for (const double point : points) {
    const double share = high > low ? (point - low) / (high - low) : 0.5;
    const auto level = static_cast<size_t>(std::lround(share * static_cast<double>(kBlocks.size() - 1)));
    line += (utf8 ? kBlocks : kAscii).at(level);
  }
  return line;
}

std::optional<int64_t> parse_byte_size(const std::string& text) {
  static const std::regex size("([0-9]{1,15}(?:\\.[0-9]{1,15})?) ?([kKMGT])(i?)B");
  std::smatch match;
  if (!std::regex_match(text, match, size)) return std::nullopt;
  const double base = match[3].length() > 0 ? 1024.0 : 1000.0;
  const char unit = match[2].str() == "K" ? 'k' : match[2].str()[0];
  const double power = static_cast<double>(std::string("kMGT").find(unit) + 1);
  const double bytes = std::stod(match[1]) * std::pow(base, power);
  return bytes < 9e18 ? std::optional(std::llround(bytes)) : std::nullopt;
}

}  // namespace trainer
