// Lines that fit into the width of a terminal without splitting a word.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace trainer {

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

}  // namespace trainer
