#include "data/csv.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "trainer/base/error.h"

namespace trainer {
namespace {

constexpr size_t kNoQuote = std::string_view::npos;

// Returns the index of the closing quote of the field whose opening quote is at `at`, or npos.
size_t closing_quote(std::string_view text, size_t at) {
  for (at = text.find('"', at + 1); at != kNoQuote; at = text.find('"', at + 2)) {
    if (at + 1 >= text.size() || text[at + 1] != '"') return at;
  }
  return kNoQuote;
}

std::string without_doubled_quotes(std::string_view text) {
  std::string field;
  field.reserve(text.size());
  for (size_t at = 0; at < text.size(); at++) {
    field += text[at];
    if (text[at] == '"') at++;
  }
  return field;
}

}  // namespace

char separator_of(std::string_view text, size_t header, char usual) {
  constexpr std::string_view kSeparators = ",;\t|";
  std::array<int64_t, kSeparators.size()> counts{};
  bool quoted = false;
  for (size_t at = header; at < text.size() && (quoted || text[at] != '\n'); at++) {
    if (text[at] == '"') quoted = !quoted;
    const size_t which = quoted ? kNoQuote : kSeparators.find(text[at]);
    if (which != std::string_view::npos) counts[which]++;
  }
  const auto most = std::ranges::max_element(counts);
  if (counts[kSeparators.find(usual)] == *most) return usual;
  return kSeparators[static_cast<size_t>(most - counts.begin())];
}

const char* separator_name(char separator) {
  if (separator == ';') return "semicolon";
  if (separator == '\t') return "tab";
  return separator == '|' ? "vertical bar" : "comma";
}

size_t record_end(std::string_view text, size_t at, char separator) {
  const char ends[] = {separator, '\n'};
  while (at < text.size()) {
    if (text[at] == '"') {
      at = closing_quote(text, at);
      if (at == kNoQuote) return text.size();
    }
    at = std::min(text.find_first_of({ends, 2}, at), text.size());
    if (at == text.size() || text[at] == '\n') return at;
    at++;
  }
  return text.size();
}

std::vector<std::string> split_record(std::string_view record, char separator) {
  std::vector<std::string> fields;
  for (size_t at = 0;; at++) {
    size_t end = 0;
    if (at < record.size() && record[at] == '"') {
      const size_t close = closing_quote(record, at);
      if (close == kNoQuote) throw DataError("a quote is not closed up to the end of the file");
      fields.push_back(without_doubled_quotes(record.substr(at + 1, close - at - 1)));
      end = close + 1;
      if (end < record.size() && record[end] != separator)
        throw DataError("there is text behind a closing quote; a quote within a field is written twice");
    } else {
      end = std::min(record.find(separator, at), record.size());
      fields.emplace_back(record.substr(at, end - at));
    }
    if (end == record.size()) return fields;
    at = end;
  }
}

}  // namespace trainer
