#include "trainer/base/strings.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/text.h"

namespace trainer {

std::string join(const std::vector<std::string>& items, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < items.size(); i++) {
    if (i > 0) out += separator;
    out += items[i];
  }
  return out;
}

std::string join_some(const std::vector<std::string>& items, size_t most, std::string_view separator) {
  if (items.size() <= most) return join(items, separator);
  const std::vector<std::string> shown(items.begin(), items.begin() + static_cast<int64_t>(most));
  const std::string more = grouped(static_cast<int64_t>(items.size() - most));
  const bool in_lines = separator.starts_with('\n');
  return concat(join(shown, separator), in_lines ? separator : " ", "and ", more, " more");
}

namespace {

bool are_continuations(std::string_view bytes) {
  return std::ranges::all_of(bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; });
}

}  // namespace

std::string one_line(std::string_view text, size_t characters) {
  std::string out;
  for (size_t at = 0; at < text.size(); characters--) {
    if (characters == 0) return out + "…";
    const auto first = static_cast<unsigned char>(text[at]);
    size_t length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    const bool is_utf8 =
        first < 0x80 ||
        (first >= 0xc2 && are_continuations(text.substr(at + 1, length - 1)) && text.size() - at >= length);
    if (!is_utf8) length = 1;  // what follows is looked at by itself
    const std::string_view character = text.substr(at, length);
    const unsigned char last = static_cast<unsigned char>(character.back());
    char escape[8];
    std::snprintf(escape, sizeof escape, "\\x%02x", last);
    if (character == "\n" || character == "\t" || character == "\r") {
      out += character == "\n" ? "\\n" : character == "\t" ? "\\t" : "\\r";
    } else if (!is_utf8 || first < 0x20 || first == 0x7f || (first == 0xc2 && last < 0xa0)) {
      out += escape;
    } else {
      out += character;
    }
    at += length;
  }
  return out;
}

std::string shape_string(const std::vector<int64_t>& shape) {
  std::vector<std::string> sizes;
  for (int64_t size : shape) sizes.push_back(std::to_string(size));
  return concat("[", join(sizes), "]");
}

std::string bytes_string(int64_t bytes) {
  static constexpr std::array units{"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(value) >= 999.5 && unit + 1 < units.size()) {
    value /= 1000;
    unit++;
  }
  char buffer[32];
  std::snprintf(buffer, sizeof buffer,
                unit == 0       ? "%.0f %s"
                : value < 9.995 ? "%.2f %s"
                                : "%.1f %s",
                value, units[unit]);
  return buffer;
}

std::string grouped(int64_t number) {
  const std::string digits = std::to_string(number);
  const size_t first = number < 0 ? 1 : 0;
  std::string out;
  for (size_t i = 0; i < digits.size(); i++) {
    if (i > first && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string duration_string(double seconds) {
  const int64_t total = std::llround(std::max(0.0, seconds));
  char buffer[48];
  if (total >= 3600) {
    std::snprintf(buffer, sizeof buffer, "%ld h %02ld min", total / 3600, total / 60 % 60);
  } else if (total >= 60) {
    std::snprintf(buffer, sizeof buffer, "%ld min %02ld s", total / 60, total % 60);
  } else {
    std::snprintf(buffer, sizeof buffer, "%ld s", total);
  }
  return buffer;
}

// Optimal string alignment distance (Damerau-Levenshtein without repeated edits).
static size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); i++) d[i][0] = i;
  for (size_t j = 0; j <= b.size(); j++) d[0][j] = j;
  for (size_t i = 1; i <= a.size(); i++) {
    for (size_t j = 1; j <= b.size(); j++) {
      const size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + cost});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
      }
    }
  }
  return d[a.size()][b.size()];
}

std::string closest(const std::string& name, const std::vector<std::string>& known) {
  std::string best;
  size_t best_distance = std::max<size_t>(2, name.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(name, candidate);
    if (distance < best_distance && distance < candidate.size()) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace trainer
