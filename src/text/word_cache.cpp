#include "text/word_cache.h"

namespace trainer {

bool WordCache::find(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.size() > kLongestWord) return false;
  const Part& part = parts_[part_of(word)];
  const std::lock_guard lock(part.mutex);
  const auto found = part.words.find(word);
  if (found == part.words.end()) return false;
  ids.insert(ids.end(), found->second.begin(), found->second.end());
  return true;
}

void WordCache::insert(std::string_view word, std::vector<int32_t> ids) {
  if (word.size() > kLongestWord) return;
  Part& part = parts_[part_of(word)];
  const std::lock_guard lock(part.mutex);
  // Starting over costs little and keeps what is common now; no bookkeeping of use is needed.
  if (part.words.size() >= kWordsPerPart) part.words.clear();
  part.words.emplace(word, std::move(ids));
}

}  // namespace trainer
