#include "text/pre_tokenizer.h"

namespace trainer {

std::vector<std::string_view> PreTokenizer::words(std::string_view text,
                                                  std::deque<std::string>& storage) const {
  std::vector<std::string_view> parts{text}, cut;
  std::vector<Span> matches;
  for (const auto& step : steps_) {
    if (std::holds_alternative<PrefixSpace>(step)) {
      for (auto& part : parts) {
        if (!part.starts_with(' ')) part = storage.emplace_back(' ' + std::string(part));
      }
      continue;
    }
    const Split& split = std::get<Split>(step);
    cut.clear();
    for (std::string_view part : parts) {
      const auto push = [&](size_t begin, size_t end, Keep left_out) {
        if (end > begin && split.keep != left_out) cut.push_back(part.substr(begin, end - begin));
      };
      matches.clear();
      split.regex.find_all(part, matches);
      size_t done = 0;
      for (const Span& match : matches) {
        push(done, match.begin, Keep::matches);
        push(match.begin, match.end, Keep::gaps);
        done = match.end;
      }
      push(done, part.size(), Keep::matches);
    }
    parts.swap(cut);
  }
  return parts;
}

}  // namespace trainer
