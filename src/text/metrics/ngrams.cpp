#include "text/metrics/ngrams.h"

#include "base/utf8.h"
#include "text/unicode/unicode.h"

namespace trainer::metrics {

std::vector<std::string_view> words(std::string_view text) {
  std::vector<std::string_view> out;
  size_t begin = std::string_view::npos;
  for (size_t at = 0; at < text.size();) {
    const size_t here = at;
    const bool space = is_python_space(next_code_point(text, at));
    if (space && begin != std::string_view::npos) {
      out.push_back(text.substr(begin, here - begin));
      begin = std::string_view::npos;
    } else if (!space && begin == std::string_view::npos) {
      begin = here;
    }
  }
  if (begin != std::string_view::npos) out.push_back(text.substr(begin));
  return out;
}

std::string single_spaced(std::string_view text) {
  std::string out;
  for (const std::string_view word : words(text)) out.append(out.empty() ? "" : " ").append(word);
  return out;
}

std::string_view strip(std::string_view text) {
  const std::vector<std::string_view> found = words(text);
  if (found.empty()) return {};
  return {found.front().begin(), found.back().end()};
}

std::string_view strip_end(std::string_view text) {
  const std::vector<std::string_view> found = words(text);
  if (found.empty()) return {};
  return {text.begin(), found.back().end()};
}

}  // namespace trainer::metrics
