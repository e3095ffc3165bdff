// The functions of Python's str that the metrics use.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainer::metrics {

// str.split(): the words between white space. The views point into `text`.
std::vector<std::string_view> words(std::string_view text);
// The same words joined by one space: " ".join(text.split()).
std::string single_spaced(std::string_view text);
// str.strip(), str.rstrip()
std::string_view strip(std::string_view text);
std::string_view strip_end(std::string_view text);

}  // namespace trainer::metrics
