// Text for people: columns, lines that fit a terminal, short lists, sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// Returns the number of UTF-8 characters; each counts as one column.
size_t count_characters(std::string_view text);

// Returns the lines of `text`, wrapped between words at `width` columns (0: never). A longer word stays
// whole. Line breaks in the text are kept.
std::vector<std::string> wrapped(const std::string& text, size_t width);

// padded_left() adds spaces on the left up to `width` columns, padded_right() on the right.
std::string padded_left(const std::string& text, size_t width);
std::string padded_right(const std::string& text, size_t width);

// Lines that fit into the width of a terminal without splitting a word.

struct LinePart {
  std::string text;
  int rank = 0;  // parts of the highest rank are left out first; those of rank 0 stay
};

// Returns the parts, two blanks apart, in at most `width` columns: parts are left out by their rank, and if
// that is not enough, words at the end. Only a single word that is too long is cut.
std::string fitted_line(const std::vector<LinePart>& parts, size_t width);

// Returns "[=====>    ]  TEXT" in at most `width` columns; without the bar where it would have fewer than
// ten. share: 0 to 1.
std::string with_bar(double share, const std::string& text, size_t width);

// Returns the text with line breaks between words, so that no line has more than `width` columns (0: never).
// `used`: columns that the first line has used already; further lines are indented by `indent`. A word that
// is too long for any line stays whole.
std::string broken_at_words(const std::string& text, size_t width, size_t used, size_t indent);

// Returns the values as a row of at most `width` characters, each the mean of its share of the values: the
// lowest to the highest one as blocks of rising height, or without `utf8` as characters of rising density.
std::string sparkline(const std::vector<double>& values, size_t width, bool utf8);

// For lists in messages: names that come from files, of which there may be a million. Returns the first
// `most` items and the number of the others: "a, b, c and 999,997 more".
std::string join_some(const std::vector<std::string>& items, size_t most = 10,
                      std::string_view separator = ", ");

// Returns the text with the letters A to Z in lower case.
std::string lower_case(std::string_view text);

// Returns the first line of an error's text: the message without LibTorch's backtrace.
inline std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Returns the number of bytes of "5GB", "1.5 GiB" or "300MB": a number and one of kB, MB, GB, TB (powers of
// 1000) or KiB, MiB, GiB, TiB (powers of 1024); K is accepted for k. Returns nullopt for anything else.
std::optional<int64_t> parse_byte_size(const std::string& text);

}  // namespace trainer
