#include "text/jinja/text.h"

#include <algorithm>

#include "trainer/base/strings.h"

#include "text/unicode/unicode.h"
#include "text/unicode/utf8.h"

namespace trainer::jinja {

void Text::too_long() {
  throw OutOfBudget(concat("a text of more than ", Budget::kLongestText >> 20, " MB"));
}

void Text::add_run(size_t size, Origin origin) {
  if (size == 0) return;
  if (bytes_.empty()) {
    origin_ = origin;
    ends_.clear();
  } else if (ends_.empty()) {
    if (origin == origin_) return;
    ends_ = {{bytes_.size(), origin_}, {bytes_.size() + size, origin}};
  } else if (ends_.back().origin == origin) {
    ends_.back().end += size;
  } else {
    ends_.push_back({bytes_.size() + size, origin});
  }
}

Text& Text::append(const Text& other, Origin origin) {
  if (&other == this) return append(Text(other), origin);
  const auto known = [&](Origin own) { return own.is_known() ? own : origin; };
  if (other.ends_.empty()) {
    require_room(other.bytes_.size());
    add_run(other.bytes_.size(), known(other.origin_));
    bytes_ += other.bytes_;
    return *this;
  }
  for (const Run& run : other.runs())
    append(std::string_view(other.bytes_).substr(run.begin, run.end - run.begin), known(run.origin));
  return *this;
}

Text Text::slice(size_t begin, size_t end) const {
  Budget::spend_bytes(end > begin ? end - begin : 0);
  Text out(bytes_.substr(begin, end - begin), safe_);
  out.origin_ = origin_;
  if (ends_.empty() || begin >= end) return out;
  auto run = std::ranges::upper_bound(ends_, begin, {}, &End::end);
  out.origin_ = run->origin;
  if (run->end >= end) return out;
  for (;; run++) {
    out.ends_.push_back({std::min(run->end, end) - begin, run->origin});
    if (run->end >= end) return out;
  }
}

std::vector<Text::Run> Text::runs() const {
  if (bytes_.empty()) return {};
  if (ends_.empty()) return {{0, bytes_.size(), origin_}};
  std::vector<Run> out;
  for (size_t begin = 0; const End& end : ends_) {
    out.push_back({begin, end.end, end.origin});
    begin = end.end;
  }
  return out;
}

Text Text::generated() const {
  Text out = *this;
  out.origin_ = origin_.in_generation();
  for (End& end : out.ends_) end.origin = end.origin.in_generation();
  return out;
}

size_t Text::length() const {
  return static_cast<size_t>(
      std::ranges::count_if(bytes_, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::vector<size_t> Text::borders() const {
  Budget::spend_bytes(bytes_.size());
  std::vector<size_t> at;
  for (size_t i = 0; i < bytes_.size(); i++) {
    if ((static_cast<unsigned char>(bytes_[i]) & 0xc0) != 0x80) at.push_back(i);
  }
  at.push_back(bytes_.size());
  return at;
}

Text Text::strip(const Text* set, bool left, bool right) const {
  const std::vector<char32_t> characters = set ? code_points(set->bytes()) : std::vector<char32_t>();
  const auto goes = [&](size_t at) {
    const char32_t c = next_code_point(bytes_, at);
    Budget::spend(characters.size() / 4);
    return set ? std::ranges::find(characters, c) != characters.end() : is_python_space(c);
  };
  const auto step_back = [&](size_t at) {
    do at--;
    while ((static_cast<unsigned char>(bytes_[at]) & 0xc0) == 0x80);
    return at;
  };
  size_t begin = 0, end = bytes_.size();
  while (left && begin < end && goes(begin)) next_code_point(bytes_, begin);
  while (right && end > begin && goes(step_back(end))) end = step_back(end);
  return slice(begin, end);
}

Text join(const std::vector<Text>& pieces, const Text& separator) {
  Text out;
  for (size_t i = 0; i < pieces.size(); i++) {
    if (i) out.append(separator);
    out.append(pieces[i]);
  }
  return out;
}

}  // namespace trainer::jinja
