#include "text/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <functional>

#include "base/utf8.h"
#include "text/unicode/unicode.h"

namespace trainer {
namespace {

// A part of a text, and whether a pattern matched it. Together, all stretches are the text.
struct Stretch {
  size_t begin, end;
  bool matched;
};

// Follows NormalizedString::split of the `tokenizers` library: a match is merged with its neighbour only if
// that is not a match.
void merge_matches(std::vector<Stretch>& stretches) {
  std::vector<Stretch> merged;
  bool previous = false;
  for (const Stretch& stretch : stretches) {
    if (stretch.matched && !previous && !merged.empty()) {
      merged.back().begin = std::min(merged.back().begin, stretch.begin);
      merged.back().end = std::max(merged.back().end, stretch.end);
    } else {
      merged.push_back(stretch);
    }
    previous = stretch.matched;
  }
  stretches.swap(merged);
}

void merge_runs(std::vector<Stretch>& stretches) {
  std::vector<Stretch> merged;
  for (const Stretch& stretch : stretches) {
    if (!merged.empty() && merged.back().matched == stretch.matched) {
      merged.back().end = stretch.end;
    } else {
      merged.push_back(stretch);
    }
  }
  stretches.swap(merged);
}

void arrange(std::vector<Stretch>& stretches, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::isolated:
      return;
    case SplitBehavior::removed:
      std::erase_if(stretches, [](const Stretch& stretch) { return stretch.matched; });
      return;
    case SplitBehavior::contiguous:
      return merge_runs(stretches);
    case SplitBehavior::merged_with_previous:
      return merge_matches(stretches);
    case SplitBehavior::merged_with_next:
      std::ranges::reverse(stretches);
      merge_matches(stretches);
      std::ranges::reverse(stretches);
  }
}

}  // namespace

struct PreTokenizer::Parts {
  std::vector<std::string_view> list;
  std::string_view whole;  // all of them, as they were at first
  bool at_start;           // whether that begins where the text does
  std::deque<std::string>& storage;

  // Whether the text begins with the first part: a step before may have left out what was in front of it.
  bool begins_text() const {
    if (!at_start || list.empty()) return false;
    const std::less<const char*> before;
    const char* begin = list.front().data();
    return !before(whole.data(), begin) || !before(begin, whole.data() + whole.size());
  }

  void push(std::string_view text) {
    if (!text.empty()) list.push_back(text);
  }
  // Cuts each part by `cut`(part, stretches), which fills in the stretches.
  template <typename Cut>
  void split(SplitBehavior behavior, Cut&& cut) {
    std::vector<std::string_view> before;
    before.swap(list);
    list.reserve(before.size());
    std::vector<Stretch> stretches;
    for (std::string_view part : before) {
      stretches.clear();
      cut(part, stretches);
      arrange(stretches, behavior);
      for (const Stretch& stretch : stretches) push(part.substr(stretch.begin, stretch.end - stretch.begin));
    }
    at_start = at_start && !list.empty() && list.front().data() == before.front().data();
  }
};

void PreTokenizer::apply(const Split& split, Parts& parts) {
  std::vector<Span> matches;
  parts.split(split.behavior, [&](std::string_view part, std::vector<Stretch>& stretches) {
    matches.clear();
    split.regex.find_all(part, matches);
    size_t done = 0;
    const auto gap_until = [&](size_t end) {
      if (end > done) stretches.push_back({done, end, split.invert});
    };
    for (const Span& match : matches) {
      gap_until(match.begin);
      stretches.push_back({match.begin, match.end, !split.invert});
      done = match.end;
    }
    gap_until(part.size());
  });
}

void PreTokenizer::apply(const CharacterSplit& split, Parts& parts) {
  parts.split(split.behavior, [&](std::string_view part, std::vector<Stretch>& stretches) {
    size_t done = 0;
    for (size_t at = 0; at < part.size();) {
      const size_t begin = at;
      const char32_t c = next_code_point(part, at);
      if (c < split.matches_ascii.size() ? !split.matches_ascii[c] : !split.matches(c)) continue;
      if (begin > done) stretches.push_back({done, begin, false});
      stretches.push_back({begin, at, true});
      done = at;
    }
    if (part.size() > done) stretches.push_back({done, part.size(), false});
  });
}

void PreTokenizer::apply(const Whitespace&, Parts& parts) {
  enum Kind { blank, word, other };
  parts.split(SplitBehavior::removed, [&](std::string_view part, std::vector<Stretch>& stretches) {
    Kind last = blank;
    for (size_t at = 0; at < part.size();) {
      const size_t begin = at;
      const char32_t c = next_code_point(part, at);
      const Kind kind = is_word_character(c) ? word : is_white_space(c) ? blank : other;
      if (!stretches.empty() && kind == last) {
        stretches.back().end = at;
      } else {
        stretches.push_back({begin, at, kind == blank});
      }
      last = kind;
    }
  });
}

void PreTokenizer::apply(const PrefixSpace&, Parts& parts) {
  for (auto& part : parts.list) {
    if (!part.starts_with(' ')) part = parts.storage.emplace_back(' ' + std::string(part));
  }
}

void PreTokenizer::apply(const Metaspace& metaspace, Parts& parts) {
  const std::string& sign = metaspace.replacement;
  size_t size = 0;
  for (std::string_view part : parts.list)
    size += sign.size() + part.size() + sign.size() * static_cast<size_t>(std::ranges::count(part, ' '));
  // All words of the text lie in one string, which must not move from here on.
  std::string& text = parts.storage.emplace_back();
  text.reserve(size);
  bool first = parts.begins_text();
  std::vector<std::string_view> before;
  before.swap(parts.list);
  parts.list.reserve(before.size());
  for (std::string_view part : before) {
    size_t begin = text.size();
    const auto finish_word = [&] {
      parts.push(std::string_view(text).substr(begin));
      begin = text.size();
    };
    const bool wanted =
        metaspace.scheme == PrependScheme::always || (metaspace.scheme == PrependScheme::first && first);
    if (wanted && !part.starts_with(' ') && !part.starts_with(sign)) text += sign;
    for (size_t at = 0; at < part.size();) {
      size_t end = at;  // of a run without spaces and signs
      while (end < part.size() && part[end] != ' ' && !part.substr(end).starts_with(sign)) end++;
      text += part.substr(at, end - at);
      if (end == part.size()) break;
      if (metaspace.split && text.size() > begin) finish_word();
      text += sign;
      at = end + (part[end] == ' ' ? 1 : sign.size());
    }
    finish_word();
    first = false;
  }
}

bool PreTokenizer::adds_sign_at_start() const {
  return std::ranges::any_of(steps_, [](const auto& step) {
    const auto* metaspace = std::get_if<Metaspace>(&step);
    return metaspace != nullptr && metaspace->scheme == PrependScheme::first;
  });
}

std::string_view PreTokenizer::sign_of_blanks() const {
  for (const auto& step : steps_) {
    if (const auto* metaspace = std::get_if<Metaspace>(&step)) return metaspace->replacement;
  }
  return "";
}

bool PreTokenizer::drops_blanks() const {
  for (const auto& step : steps_) {
    if (std::holds_alternative<Metaspace>(step)) return false;
    const auto* split = std::get_if<CharacterSplit>(&step);
    if (split && split->behavior == SplitBehavior::removed && split->matches(U' ')) return true;
  }
  return false;
}

std::vector<std::string_view> PreTokenizer::words(std::string_view text, bool at_start,
                                                  std::deque<std::string>& storage) const {
  Parts parts{{text}, text, at_start, storage};
  for (const auto& step : steps_) std::visit([&](const auto& kind) { apply(kind, parts); }, step);
  return std::move(parts.list);
}

}  // namespace trainer
