// What the metrics ask of a text, with the meaning that it has in Python.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trainer::metrics {

// str.split(): what lies between white space. The views are into `text`.
std::vector<std::string_view> words(std::string_view text);
// The same with one blank between them: what " ".join(text.split()) gives.
std::string single_spaced(std::string_view text);
// str.strip(), str.rstrip()
std::string_view strip(std::string_view text);
std::string_view strip_end(std::string_view text);

}  // namespace trainer::metrics
